package policy

import (
	"context"
	"fmt"
	"time"
)

// A Selector decides which candidates may serve a request, and in which order.
type Selector interface {
	// Select judges each of req.Candidates. It is called once per request and
	// once more when a request has waited; it should answer within
	// microseconds and must not wait for capacity.
	Select(ctx context.Context, req *SelectRequest) (Selection, error)
}

// A SelectRequest is what a [Selector] is asked.
type SelectRequest struct {
	// Request is the request to serve.
	Request *Request

	// Candidates are those that no earlier policy has skipped, in the order
	// of the policy before, or of the configuration.
	Candidates []Candidate

	// Verdicts are what the policies before said, over all candidates.
	Verdicts []Verdict
}

// A Selection is the answer of a [Selector]: at most one verdict for each
// candidate. Eligible and busy candidates are ranked by the order in which
// they were added, best first. A candidate without a verdict counts as
// skipped for [ReasonNotRanked]. The zero value selects nothing.
type Selection struct {
	Verdicts []Verdict
}

// Add ranks c next: it may serve the request now.
func (s *Selection) Add(c Candidate) {
	s.Verdicts = append(s.Verdicts, Verdict{Candidate: c.ID, Status: Eligible})
}

// Busy ranks c next: it may serve the request as soon as it has capacity, so
// admission may wait for it.
func (s *Selection) Busy(c Candidate, why Why) {
	s.Verdicts = append(s.Verdicts, Verdict{Candidate: c.ID, Status: Busy, Why: why})
}

// Skip leaves c out.
func (s *Selection) Skip(c Candidate, why Why) {
	s.Verdicts = append(s.Verdicts, Verdict{Candidate: c.ID, Status: Skipped, Why: why})
}

// Check reports what is wrong with s as an answer about the offered candidates:
// a verdict on a candidate that was not offered, two on the same one, or a word
// outside of the closed sets.
func (s Selection) Check(offered []Candidate) error {
	f := finder{offered: offered}
	var few [64]bool
	judged := few[:]
	if len(offered) > len(few) {
		judged = make([]bool, len(offered))
	}
	for _, v := range s.Verdicts {
		i, known := f.find(v.Candidate)
		switch {
		case !known:
			return fmt.Errorf("verdict on candidate %q, which was not offered", v.Candidate)
		case judged[i]:
			return fmt.Errorf("two verdicts on candidate %q", v.Candidate)
		case v.Status != Eligible && v.Status != Busy && v.Status != Skipped:
			return fmt.Errorf("verdict on candidate %q: unknown status %q", v.Candidate, v.Status)
		case v.Status != Eligible && !v.Reason.Valid():
			return fmt.Errorf("verdict on candidate %q: unknown reason %q", v.Candidate, v.Reason)
		}
		judged[i] = true
	}
	return nil
}

// Ranked returns those of the offered candidates that s ranks, best first.
func (s Selection) Ranked(offered []Candidate) []Candidate {
	f := finder{offered: offered}
	ranked := make([]Candidate, 0, len(s.Verdicts))
	for _, v := range s.Verdicts {
		if i, ok := f.find(v.Candidate); ok && v.Status != Skipped {
			ranked = append(ranked, offered[i])
		}
	}
	return ranked
}

// A finder finds candidates by their IDs. Those that are looked for in their
// order, as most are, cost nothing.
type finder struct {
	offered []Candidate
	next    int            // after the one that was found last
	byID    map[string]int // of many, once one was not in order
}

// fewCandidates are looked at one by one.
const fewCandidates = 16

func (f *finder) find(id string) (i int, ok bool) {
	switch {
	case f.next < len(f.offered) && f.offered[f.next].ID == id:
		i, ok = f.next, true
	case len(f.offered) <= fewCandidates:
		for i < len(f.offered) && f.offered[i].ID != id {
			i++
		}
		ok = i < len(f.offered)
	default:
		if f.byID == nil {
			f.byID = make(map[string]int, len(f.offered))
			for i := range f.offered {
				f.byID[f.offered[i].ID] = i
			}
		}
		i, ok = f.byID[id]
	}
	f.next = i + 1
	return i, ok
}

// A Verdict is what selection says of one candidate.
type Verdict struct {
	// Candidate is the ID of the candidate.
	Candidate string

	// Status says whether the candidate may serve the request.
	Status Status

	// Why explains a status other than Eligible.
	Why
}

// A Status is the outcome of a [Verdict].
type Status string

// The statuses. The set is closed.
const (
	// Eligible candidates may serve the request now.
	Eligible Status = "eligible"
	// Busy candidates lack nothing but capacity.
	Busy Status = "busy"
	// Skipped candidates cannot serve the request.
	Skipped Status = "skipped"
)

// Why explains a verdict in words and numbers that an operator can check. Its
// zero value explains nothing.
type Why struct {
	// Reason is one of the closed set.
	Reason Reason

	// Detail adds a few words that the reason cannot say, such as the name of
	// a rule. It must be short, free of secrets, and drawn from a small set.
	Detail string

	// Observed is the number that was compared with Limit, such as 4 running
	// requests of 4. Both are 0 if the reason is not about numbers.
	Observed, Limit float64

	// Until is the instant at which the verdict may change by itself, or the
	// zero time if that is not known.
	Until time.Time
}

// FilterFunc adapts a function that judges one candidate to a [Selector]. The
// function returns the zero [Why] to keep the candidate. Order is preserved.
type FilterFunc func(ctx context.Context, req *Request, c Candidate) (Why, error)

// Select calls f for each candidate.
func (f FilterFunc) Select(ctx context.Context, req *SelectRequest) (Selection, error) {
	var s Selection
	for _, c := range req.Candidates {
		why, err := f(ctx, req.Request, c)
		if err != nil {
			return Selection{}, err
		}
		switch {
		case why.Reason == "":
			s.Add(c)
		case why.Reason.Capacity():
			s.Busy(c, why)
		default:
			s.Skip(c, why)
		}
	}
	return s, nil
}

var _ Selector = FilterFunc(nil)
