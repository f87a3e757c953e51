package queue

import (
	"slices"
	"time"
)

// exactTakes is how many takes a window remembers one by one. Beyond that, those
// that lie within the same 1/exactTakes of the window are remembered as one, at
// the time of the last of them. So a window has at most about twice as many, and
// errs to the safe side only.
const exactTakes = 1024

// A window is what was taken of a rate scope within its span before now. It is
// the log of a sliding window: something taken at t counts until just before
// t + span, so no span of that length, wherever it begins, sees more than the
// limit.
//
// Instants are counted from the beginning of the queue.
type window struct {
	span  time.Duration
	takes []take // oldest first
	base  uint64 // serial number of takes[0]
	sum   int64  // of takes
}

type take struct {
	at     time.Duration
	amount int64
}

// advance forgets what lies outside of the span that ends now.
func (w *window) advance(now time.Duration) {
	n := 0
	for n < len(w.takes) && w.takes[n].at+w.span <= now {
		w.sum -= w.takes[n].amount
		n++
	}
	w.takes, w.base = w.takes[n:], w.base+uint64(n)
}

// take adds amount, and returns its serial number for settle.
func (w *window) take(now time.Duration, amount int64) uint64 {
	w.sum += amount
	last := len(w.takes) - 1
	if grain := max(w.span/exactTakes, 1); last >= exactTakes && w.takes[last].at/grain == now/grain {
		w.takes[last].at = now
		w.takes[last].amount += amount
	} else {
		w.takes = append(w.takes, take{now, amount})
		last++
	}
	return w.base + uint64(last)
}

// settle corrects the amount of a take, unless it is forgotten already.
func (w *window) settle(serial uint64, difference int64) {
	if serial < w.base {
		return
	}
	w.takes[serial-w.base].amount += difference
	w.sum += difference
}

// when returns the first instant at which at most sum is taken, if nothing else
// happens until then.
func (w *window) when(sum int64) (time.Duration, bool) {
	left := w.sum
	i := slices.IndexFunc(w.takes, func(t take) bool {
		left -= t.amount
		return left <= sum
	})
	if i < 0 {
		return 0, false
	}
	return w.takes[i].at + w.span, true
}
