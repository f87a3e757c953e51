// Package storetest checks that a fifo.Store keeps the invariants of package
// fifo. Its tests carry the numbers of the invariants that they check.
package storetest

import (
	"testing"

	"github.com/usherproxy/usher/plugins/fifo"
)

// Test runs the whole suite. Each test gets a store of its own from open, which
// may use t.Cleanup and may skip the test.
func Test(t *testing.T, open func(t *testing.T) fifo.Store) {
	for name, test := range map[string]func(*suite){
		"1 leases never exceed a concurrency limit":       limitsHold,
		"1 records of other scopes change nothing (B43)":  manyRecords,
		"2 a window opens when its oldest take leaves it": windowOpens,
		"2 tokens are settled by real usage":              tokensSettle,
		"2 unknown usage keeps the reservation":           unknownUsage,
		"3 the first ranked candidate with room":          firstRanked,
		"3 a waiting request takes any candidate":         anyCandidate,
		"3 a refusal takes nothing":                       refusalTakesNothing,
		"4 arrival order against newcomers (B29)":         newcomers,
		"4 priority before arrival":                       priority,
		"4 a blocked head holds up nobody else":           blockedHead,
		"4 a smaller request passes nobody":               smallerRequest,
		"4 a head that moves holds up nobody":             movedHead,
		"4 a line that moves holds up nobody":             movedLine,
		"4 strict order holds up all who share":           strictOrder,
		"5 room is kept after enough passes":              boundedPasses,
		"6 a history agrees with the model":               histories,
		"7 all at once":                                   chaos,
		"7 a grant races a timeout (B27)":                 grantRacesTimeout,
		"7 a grant races a cancel":                        grantRacesCancel,
		"7 a context that has ended":                      endedContext,
		"7 a ticket is in use once":                       ticketInUse,
		"8 a second release changes nothing (B36)":        releaseTwice,
		"9 the queue is full":                             queueFull,
		"9 the wait is too long":                          queueTimeout,
		"9 a request that may not wait":                   noWait,
		"9 a request without candidates":                  noCandidates,
		"10 a lowered limit ends nothing":                 loweredLimit,
		"10 a lowered limit holds for the next":           loweredBefore,
		"10 a raised limit lets waiters start":            raisedLimit,
		"10 an older request does not bring a limit back": olderLimit,
		"11 restored leases hold their scopes":            restoreRunning,
		"11 restored waiters keep their places":           restoreWaiting,
		"11 restored waiters in any order":                restoreUnsorted,
		"11 a restored waiter that has left":              restoreGone,
		"11 other candidates than were restored":          restoreOtherCandidates,
		"11 restore changes nothing if it fails":          restoreInUse,
		"13 a failover has its old place":                 failover,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{T: t, store: open(t), rules: fifo.Rules{Order: fifo.OrderBestEffort}})
		})
	}
}
