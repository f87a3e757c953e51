package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A bench is a queue in which somebody runs and the given number wait.
type bench struct {
	*testing.B
	queue   *queue.Queue
	now     time.Time
	serial  int64
	rules   queue.Rules
	running []*queue.Ticket
	request func(serial int64) *policy.AdmitRequest
}

func newBench(b *testing.B, waiting int, rules queue.Rules, request func(serial int64) *policy.AdmitRequest) *bench {
	now := time.Unix(1e9, 0)
	h := &bench{B: b, queue: queue.New(now), now: now, rules: rules, request: request}
	for len(h.running) == 0 || waiting > 0 {
		if !h.admit().Running() {
			waiting--
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	return h
}

func (h *bench) admit() *queue.Ticket {
	h.serial++
	h.now = h.now.Add(time.Microsecond)
	t, _, err := h.queue.Admit(h.now, h.request(h.serial), h.rules)
	if err != nil {
		h.Fatal(err)
	}
	if t.Running() {
		h.running = append(h.running, t)
	}
	return t
}

// handOff releases the oldest lease and lets a new request wait.
func (h *bench) handOff() {
	t := h.running[0]
	h.running = append(h.running[1:], h.queue.Release(h.now, t, nil)...)
	h.admit()
}

func concurrency(id string, limit int64) policy.Scope {
	return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: limit}
}

func request(serial int64, own []policy.Scope, candidates ...[]policy.Scope) *policy.AdmitRequest {
	req := &policy.AdmitRequest{Attempt: 1, Request: &policy.Request{ID: fmt.Sprint(serial), Arrival: serial, Scopes: own}}
	for i, scopes := range candidates {
		req.Candidates = append(req.Candidates, policy.Candidate{ID: fmt.Sprint("c", i), Scopes: scopes})
	}
	return req
}

// One lease ends, the next begins, and one more request waits: for one scope,
// for any of three, and for one with as many lines as requests.
func BenchmarkHandOff(b *testing.B) {
	fleet := []policy.Scope{concurrency("fleet", 1000)}
	kinds := map[string]func(serial int64) *policy.AdmitRequest{
		"key": func(serial int64) *policy.AdmitRequest {
			return request(serial, fleet, []policy.Scope{concurrency("key:1", 8)})
		},
		"three keys": func(serial int64) *policy.AdmitRequest {
			return request(serial, fleet, []policy.Scope{concurrency("key:1", 8)}, []policy.Scope{concurrency("key:2", 8)}, []policy.Scope{concurrency("key:3", 8)})
		},
		"limited callers": func(serial int64) *policy.AdmitRequest {
			return request(serial, []policy.Scope{concurrency(fmt.Sprint("caller:", serial%20000), 4)}, []policy.Scope{concurrency("key:1", 8)})
		},
	}
	for name, kind := range kinds {
		for _, waiting := range []int{10, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/waiting=%d", name, waiting), func(b *testing.B) {
				h := newBench(b, waiting, queue.Rules{MaxPasses: 8}, kind)
				for b.Loop() {
					h.handOff()
				}
			})
		}
	}
}

// The worst case: ten thousand callers with limits wait for a provider and for
// the fleet, and which of the two has room alternates. Each time all lines move,
// until a bound on passes stops them. Time is per hand-off to one of them.
func BenchmarkAlternatingBottlenecks(b *testing.B) {
	for _, passes := range []int{0, 8} {
		b.Run(fmt.Sprintf("max_passes=%d", passes), func(b *testing.B) {
			h := newBench(b, 10000, queue.Rules{MaxPasses: passes}, func(serial int64) *policy.AdmitRequest {
				own := []policy.Scope{concurrency(fmt.Sprint("caller:", serial%20000), 4), concurrency("a", 1)}
				return request(serial, own, []policy.Scope{concurrency("b", 1)})
			})
			for b.Loop() {
				onlyA := h.urgent("a")
				h.queue.Release(h.now, h.running[0], nil) // b has room, and a has not
				onlyB := h.urgent("b")
				h.queue.Release(h.now, onlyA, nil) // a has room, and b has not
				h.running[0] = h.queue.Release(h.now, onlyB, nil)[0]
				h.admit()
			}
		})
	}
}

// urgent admits a request of high priority that needs one scope.
func (h *bench) urgent(scope string) *queue.Ticket {
	h.serial++
	req := request(h.serial, nil, []policy.Scope{concurrency(scope, 1)})
	req.Request.Priority = 1
	t, _, err := h.queue.Admit(h.now, req, queue.Rules{})
	if err != nil {
		h.Fatal(err)
	}
	return t
}
