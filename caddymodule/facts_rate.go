package caddymodule

import (
	"time"

	"github.com/usherproxy/usher/policy"
)

// rateSlots is into how many parts a rate's window is divided: what was taken
// leaves the count up to one part late.
const rateSlots = 60

// A rateKey names the window of a rate scope.
type rateKey struct {
	id     string
	kind   policy.ScopeKind
	window time.Duration
}

func rateKeyOf(s policy.Scope) rateKey { return rateKey{s.ID, s.Kind, s.Window} }

// A rate counts what was taken of a rate scope within its last window. Times
// are since the start of the process.
type rate struct {
	total int64
	slots []rateSlot // oldest first, of distinct numbers
}

// A rateSlot is what was taken within one part of a window.
type rateSlot struct {
	number int64 // of the part, since the start
	taken  int64
}

// width is the length of one part of a window.
func width(window time.Duration) time.Duration { return max(window/rateSlots, 1) }

// expire forgets what has left the window.
func (r *rate) expire(now, window time.Duration) {
	for len(r.slots) > 0 && r.resets(window) <= now {
		r.total -= r.slots[0].taken
		r.slots = r.slots[1:]
	}
}

// resets is when the first of what is counted leaves the window.
func (r *rate) resets(window time.Duration) time.Duration {
	return time.Duration(r.slots[0].number+1)*width(window) + window
}

// add counts n more, which were taken at a time; a negative n takes back. What
// was taken at a time that has left the window meanwhile is not counted.
func (r *rate) add(at, window time.Duration, n int64) {
	number := int64(at / width(window))
	for i := len(r.slots) - 1; i >= 0 && r.slots[i].number >= number; i-- {
		if r.slots[i].number == number {
			r.slots[i].taken += n
			r.total += n
			return
		}
	}
	if len(r.slots) == 0 || r.slots[len(r.slots)-1].number < number {
		r.slots = append(r.slots, rateSlot{number, n})
		r.total += n
	}
}
