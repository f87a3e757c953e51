package queue

import "time"

// A pace is how fast those who wait for a scope are served, over about the last
// minutes in which somebody waited.
type pace struct {
	served float64
	busy   time.Duration // how long somebody waited while these were served
	last   time.Duration // when the last of them was
	paused time.Duration // since when nobody waits, if nobody does
}

const paceMemory = 2 * time.Minute

// pause notes that nobody waits any more.
func (p *pace) pause(now time.Duration) { p.paused = now }

// resume notes that somebody waits again. The time since pause does not count.
func (p *pace) resume(now time.Duration) { p.last += now - p.paused }

// serve notes that somebody who waited is served.
func (p *pace) serve(now time.Duration) {
	p.served++
	p.busy += now - p.last
	p.last = now
	if p.busy > paceMemory {
		p.served, p.busy = p.served/2, p.busy/2
	}
}

// estimate returns how long it takes to serve n, or false if that is not known.
// Somebody must be waiting.
func (p *pace) estimate(now time.Duration, n int) (time.Duration, bool) {
	if p.served == 0 {
		return 0, false
	}
	return time.Duration(float64(p.busy+now-p.last) / p.served * float64(n)), true
}
