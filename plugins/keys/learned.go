package keys

import (
	"math"
	"time"
)

// Learned is a limit of requests per minute that a key seems to have. The zero
// value is none.
type Learned struct {
	// Limit is how many requests passed, or what the provider said.
	Limit int `json:"limit"`

	// Told is set if the provider said so itself.
	Told bool `json:"told,omitzero"`

	// Since is when that was learned.
	Since time.Time `json:"since,omitzero"`

	// Candidate is what the refusal before the last one made of the limit: a
	// limit is learned when two of them agree. CandidateAt is when.
	Candidate   int       `json:"candidate,omitzero"`
	CandidateAt time.Time `json:"candidate_at,omitzero"`
}

const (
	detailLearned = "learned"

	// learnedFor is how long a learned limit holds.
	learnedFor = time.Hour

	// learnedGrowth is by what part a learned limit grows in a minute: who
	// never goes beyond it never finds out that it was too low.
	learnedGrowth = 0.02

	// learnedLeast is the least number of requests in a minute from which
	// something is learned. Fewer are more likely to have met another limit.
	learnedLeast = 10

	// learnedApart is how far two refusals lie apart at least that count as
	// two, and learnedAgree by what part they may differ.
	learnedApart = time.Minute
	learnedAgree = 0.3
)

// At returns the limit that holds at an instant, or 0.
func (l Learned) At(now time.Time) int {
	age := now.Sub(l.Since)
	switch {
	case l.Limit == 0 || age >= learnedFor:
		return 0
	case l.Told || age <= 0:
		return l.Limit
	}
	return int(float64(l.Limit) * (1 + learnedGrowth*math.Floor(age.Minutes())))
}

// told returns what to know once the provider said what its limit is.
func (l Learned) told(at time.Time, limit int) Learned {
	if at.Before(l.Since) {
		return l
	}
	return Learned{Limit: limit, Told: true, Since: at}
}

// refused returns what to know once the provider refused a request though it
// told of no limit, when requests had come within a minute.
func (l Learned) refused(at time.Time, requests int) Learned {
	if requests < learnedLeast || l.Told && l.At(at) > 0 || at.Before(l.CandidateAt.Add(learnedApart)) {
		return l
	}
	agree := l.Candidate > 0 && at.Sub(l.CandidateAt) < learnedFor &&
		math.Abs(float64(requests-l.Candidate)) <= learnedAgree*float64(max(requests, l.Candidate))
	if agree {
		l.Limit, l.Told, l.Since = min(requests, l.Candidate), false, at
	}
	l.Candidate, l.CandidateAt = requests, at
	return l
}

// A counter counts events within the last minute, in steps of a few seconds.
// Its zero value has counted nothing.
type counter struct {
	steps [counterSteps]uint32
	last  int64 // the number of the step that was counted last
}

const (
	counterSteps = 12
	counterStep  = time.Minute / counterSteps
)

// add counts one event.
func (c *counter) add(at time.Time) {
	step := stepOf(at)
	if step <= c.last-counterSteps {
		return
	}
	for i := max(c.last+1, step-counterSteps+1); i <= step; i++ {
		*c.at(i) = 0
	}
	c.last = max(c.last, step)
	*c.at(step)++
}

// count returns how many events were counted within the last minute.
func (c *counter) count(now time.Time) int {
	step := stepOf(now)
	var sum uint32
	for i := max(step, c.last) - counterSteps + 1; i <= min(step, c.last); i++ {
		sum += *c.at(i)
	}
	return int(sum)
}

func (c *counter) at(step int64) *uint32 { return &c.steps[uint64(step)%counterSteps] }

func stepOf(at time.Time) int64 { return at.Unix() / int64(counterStep/time.Second) }
