package caddymodule

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A decision is the whole story of one request. It is what the admin route
// /usher/decisions shows.
type decision struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Caller    string    `json:"caller,omitempty"`
	Group     string    `json:"group,omitempty"`
	Operation string    `json:"operation"`
	Model     string    `json:"model"`
	Stream    bool      `json:"stream,omitempty"`
	Priority  int       `json:"priority,omitempty"`

	// What follows happened in the order of its at_ms, the time since the
	// request came. Of a request that was judged again and again, the first and
	// the last times are kept.

	// Selections are what the selection policies said, in the order in which
	// they were asked; also again, after a wait.
	Selections []selectionRecord `json:"selections"`

	// Admissions are what the admission policies said, one for each time that
	// the request asked for a lease.
	Admissions []admissionRecord `json:"admissions"`

	Attempts []attemptRecord `json:"attempts"`

	// Fallbacks are the models that were tried in place of the one that was
	// asked for.
	Fallbacks []fallbackRecord `json:"fallbacks,omitempty"`

	// Omitted is how many selections and admissions are not kept.
	Omitted int `json:"omitted,omitempty"`

	// Status is what the caller got, 0 if it left before it got anything.
	Status int `json:"status"`

	// Refusal is set if the request was turned away by Usher itself, or ended
	// because its lease was revoked.
	Refusal string `json:"refusal,omitempty"`

	Disposition policy.Disposition `json:"disposition"`
	Duration    milliseconds       `json:"duration_ms"`

	verdicts int // of all selections
}

type selectionRecord struct {
	At       milliseconds    `json:"at_ms"`
	Policy   string          `json:"policy"`
	Verdicts []verdictRecord `json:"verdicts,omitempty"`
	Error    string          `json:"error,omitempty"`
	Duration milliseconds    `json:"duration_ms"`
}

type verdictRecord struct {
	Candidate string        `json:"candidate"`
	Verdict   policy.Status `json:"verdict"`
	Reason    policy.Reason `json:"reason,omitempty"`
	Detail    string        `json:"detail,omitempty"`
	Observed  float64       `json:"observed,omitempty"`
	Limit     float64       `json:"limit,omitempty"`
	Until     *time.Time    `json:"until,omitempty"`
}

type admissionRecord struct {
	At         milliseconds  `json:"at_ms"`
	Policy     string        `json:"policy"`
	Candidate  string        `json:"candidate,omitempty"`
	Rejected   policy.Reason `json:"rejected,omitempty"`
	RetryAfter milliseconds  `json:"retry_after_ms,omitempty"`
	Error      string        `json:"error,omitempty"`
	Waited     bool          `json:"waited,omitempty"`
	Moved      bool          `json:"moved,omitempty"`    // others could serve it by then, so it asked again
	Position   int           `json:"position,omitempty"` // where it began to wait
	Duration   milliseconds  `json:"duration_ms"`
}

type attemptRecord struct {
	At          milliseconds       `json:"at_ms"`
	Attempt     int                `json:"attempt"`
	Candidate   string             `json:"candidate"`
	Status      int                `json:"status,omitempty"`
	Disposition policy.Disposition `json:"disposition"`
	Error       string             `json:"error,omitempty"`
	Timeout     string             `json:"timeout,omitempty"` // the part that took too long
	Until       *time.Time         `json:"until,omitempty"`
	About       policy.Subject     `json:"about,omitempty"`
	Windows     []windowRecord     `json:"windows,omitempty"`
	NoRetry     string             `json:"no_retry,omitempty"` // why it was the last one, though others were left
	FirstEvent  milliseconds       `json:"first_event_ms,omitempty"`
	Duration    milliseconds       `json:"duration_ms"`
	Usage       *usageRecord       `json:"usage,omitempty"`
}

type fallbackRecord struct {
	At    milliseconds `json:"at_ms"`
	Model string       `json:"model"`
}

// A windowRecord is one of the provider's limits, as its answer told of it.
type windowRecord struct {
	Name   string         `json:"name"`
	About  policy.Subject `json:"about"`
	Used   float64        `json:"used"` // from 0 to 1
	Limit  float64        `json:"limit,omitempty"`
	Resets *time.Time     `json:"resets,omitempty"`
}

type usageRecord struct {
	InputTokens     int64 `json:"input_tokens"`
	OutputTokens    int64 `json:"output_tokens"`
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
}

// milliseconds is a duration that JSON shows as a number of milliseconds, with
// microseconds behind the point.
type milliseconds float64

func inMilliseconds(d time.Duration) milliseconds {
	return milliseconds(float64(d.Microseconds()) / 1000)
}

// brief returns s as valid text of at most n bytes.
func brief(s string, n int) string {
	return strings.ToValidUTF8(s[:min(len(s), n)], "")
}

// at returns when something happened, for the record.
func (r *run) at(t time.Time) milliseconds { return inMilliseconds(t.Sub(r.began)) }

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

const (
	// maxSteps is how many selections, and how many admissions, one decision
	// keeps, and maxVerdicts how many verdicts. The first and the last selection
	// stay in any case.
	maxSteps    = 50
	maxVerdicts = 2000
)

func (d *decision) addSelection(one selectionRecord) {
	d.Selections = append(d.Selections, one)
	d.verdicts += len(one.Verdicts)
	for len(d.Selections) > 2 && (len(d.Selections) > maxSteps || d.verdicts > maxVerdicts) {
		d.verdicts -= len(d.Selections[1].Verdicts)
		d.Selections = slices.Delete(d.Selections, 1, 2)
		d.Omitted++
	}
}

func (d *decision) addAdmission(one admissionRecord) {
	d.Admissions = append(d.Admissions, one)
	if len(d.Admissions) > maxSteps {
		d.Admissions = slices.Delete(d.Admissions, 1, 2)
		d.Omitted++
	}
}

func recordVerdicts(vs []policy.Verdict) []verdictRecord {
	out := make([]verdictRecord, len(vs))
	for i, v := range vs {
		out[i] = verdictRecord{
			Candidate: v.Candidate, Verdict: v.Status, Reason: v.Reason, Detail: v.Detail,
			Observed: v.Observed, Limit: v.Limit, Until: optionalTime(v.Until),
		}
	}
	return out
}

func recordWindows(windows []policy.Window) []windowRecord {
	var out []windowRecord
	for _, w := range windows {
		out = append(out, windowRecord{w.Name, w.About, w.Used, w.Limit, optionalTime(w.Resets)})
	}
	return out
}

const (
	// keptDecisions is how many of the last decisions are kept for the admin
	// route at most, and keptVerdicts how many verdicts there are in them: with
	// thousands of candidates, fewer decisions are kept.
	keptDecisions = 1000
	keptVerdicts  = 200_000
)

// decisions keeps the last decisions.
type decisions struct {
	mu       sync.Mutex
	kept     []*decision // oldest first
	verdicts int         // in kept
}

func (d *decisions) add(one *decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = append(d.kept, one)
	d.verdicts += one.verdicts
	for len(d.kept) > keptDecisions || len(d.kept) > 1 && d.verdicts > keptVerdicts {
		d.verdicts -= d.kept[0].verdicts
		d.kept[0] = nil // for the garbage collector
		d.kept = d.kept[1:]
	}
}

// last returns up to n decisions, newest first.
func (d *decisions) last(n int) []*decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := append([]*decision{}, d.kept[max(len(d.kept)-n, 0):]...)
	slices.Reverse(last)
	return last
}

// find returns the decision about a request, or nil.
func (d *decisions) find(id string) *decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.kept {
		if one.ID == id {
			return one
		}
	}
	return nil
}
