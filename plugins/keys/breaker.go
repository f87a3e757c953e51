package keys

import (
	"cmp"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// A Breaker says whether a subject is left alone after failures. Its zero value
// is closed.
//
// An open breaker blocks until an instant, and is half-open from then on: it
// lets one probe pass at a time.
type Breaker struct {
	// Open is set from the failures that opened the breaker to the probe that
	// closes it.
	Open bool `json:"open"`

	// Until is when the first probe may pass.
	Until time.Time `json:"until,omitzero"`

	// Probe is the ID of the request that probes, up to ProbeUntil. Probing is
	// set from when the probe was given away, which was at ProbedAt, until it
	// comes back, which is ProbedAt then.
	Probing    bool      `json:"probing,omitzero"`
	Probe      string    `json:"probe,omitzero"`
	ProbeUntil time.Time `json:"probe_until,omitzero"`
	ProbedAt   time.Time `json:"probed_at,omitzero"`

	// Failures is how many failures opened the breaker and keep it open, and
	// Limit how many open one.
	Failures int `json:"failures,omitzero"`
	Limit    int `json:"limit,omitzero"`

	// MovedAt is when it last opened or closed. What began before is a
	// straggler.
	MovedAt time.Time `json:"moved_at,omitzero"`

	// Interval is how long the current opening lasts, before jitter.
	Interval sdk.Duration `json:"interval,omitzero"`
}

// Details of the reasons that come from a breaker.
const (
	detailProbe    = "probe"
	detailProbeDue = "probe_due"
)

func (b *Breaker) open() bool { return b != nil && b.Open }

// blocks returns reason if the open breaker lets the request not pass.
func (b *Breaker) blocks(now time.Time, request string, reason policy.Reason, detail string) policy.Why {
	switch {
	case now.Before(b.Until):
		return policy.Why{Reason: reason, Detail: detail, Until: b.Until}
	case b.Probing && now.Before(b.ProbeUntil) && b.Probe != request:
		return policy.Why{Reason: reason, Detail: detailProbe, Until: b.ProbeUntil}
	}
	return policy.Why{}
}

// newer reports whether b is what became of c.
func (b *Breaker) newer(c *Breaker) bool {
	return cmp.Or(b.MovedAt.Compare(c.MovedAt), b.ProbedAt.Compare(c.ProbedAt)) > 0
}

// A breaker is a Breaker with the memory that moves it.
type breaker struct {
	Breaker

	// recent are the ends of the failures in a row, in order, while closed.
	recent []time.Time

	// success is when the latest success proved the key's health, while
	// closed. Failures up to then do not count.
	success time.Time
}

// An outcome is what the end of an attempt says to one breaker.
type outcome int

const (
	neutral outcome = iota
	success
	failure
)

// An ending is how an attempt ended, with the times that tell it from others.
type ending struct {
	outcome outcome
	request string

	// began is when it was sent, proved when its first event came (or its
	// end, without one), and ended when it ended.
	began, proved, ended time.Time
}

// take gives the probe to a request.
func (b *breaker) take(now time.Time, request string, c BreakerConfig) {
	b.Probing, b.Probe, b.ProbedAt, b.ProbeUntil = true, request, now, now.Add(time.Duration(c.ProbeTimeout))
}

// giveBack ends the probe without a result.
func (b *breaker) giveBack(now time.Time) {
	b.Probing, b.Probe, b.ProbedAt, b.ProbeUntil = false, "", now, time.Time{}
}

// end moves the breaker by the end of an attempt, and reports whether that
// opened or closed it.
func (b *breaker) end(e ending, c BreakerConfig) (moved bool) {
	if b.Open {
		return b.endWhileOpen(e, c)
	}
	switch e.outcome {
	case success:
		b.succeed(e.proved)
	case failure:
		return b.fail(e, c)
	}
	return false
}

// endWhileOpen moves the breaker if the attempt was the probe.
func (b *breaker) endWhileOpen(e ending, c BreakerConfig) bool {
	if !b.Probing || b.Probe != e.request || e.began.Before(b.ProbedAt) {
		return false
	}
	switch e.outcome {
	case success:
		*b = breaker{Breaker: Breaker{MovedAt: e.ended}}
		return true
	case failure:
		b.giveBack(e.ended)
		b.Failures++
		b.openUntil(e, min(2*b.Interval, c.OpenMax))
		return true
	}
	b.giveBack(e.ended)
	return false
}

func (b *breaker) succeed(at time.Time) {
	if at.After(b.success) {
		b.success = at
		b.recent = slices.DeleteFunc(b.recent, func(t time.Time) bool { return !t.After(at) })
	}
}

func (b *breaker) fail(e ending, c BreakerConfig) bool {
	if c.Failures == 0 || e.began.Before(b.MovedAt) || !e.ended.After(b.success) {
		return false
	}
	at, _ := slices.BinarySearchFunc(b.recent, e.ended, time.Time.Compare)
	b.recent = slices.Insert(b.recent, at, e.ended)
	oldest := b.recent[len(b.recent)-1].Add(-time.Duration(c.Window))
	b.recent = slices.DeleteFunc(b.recent, func(t time.Time) bool { return t.Before(oldest) })
	if len(b.recent) < c.Failures {
		return false
	}
	*b = breaker{Breaker: Breaker{Open: true, Failures: len(b.recent), Limit: c.Failures}}
	b.openUntil(e, c.Open)
	return true
}

// openUntil opens the breaker for an interval from the end of the attempt on.
func (b *breaker) openUntil(e ending, interval sdk.Duration) {
	b.MovedAt, b.Interval = e.ended, interval
	b.Until = e.ended.Add(jitter(time.Duration(interval), e.request))
}
