package keys_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// A site is an instance of the policy with a clock that stands still, dice
// that count, and candidates named "provider/key/model".
type site struct {
	t      *testing.T
	plugin *keys.Plugin
	now    time.Time
	policy.Selector
	policy.Observer
	policy.Operable
	candidates []policy.Candidate
	requests   int

	clock atomic.Pointer[time.Time] // of replicas, who look at it while tests go on
}

func newSite(t *testing.T, config string, ids ...string) *site {
	t.Helper()
	s := &site{t: t, plugin: keys.New(), now: time.Unix(1_000_000, 0)}
	s.plugin.Clock = func() time.Time { return s.now }
	var rolls atomic.Uint64
	s.plugin.Dice = func() keys.Seed { return keys.Seed(rolls.Add(1)) }
	s.plugin.Logger = slog.New(slog.DiscardHandler)
	for _, id := range ids {
		s.candidates = append(s.candidates, candidate(id))
	}
	s.configure(config)
	return s
}

// candidate takes "p/k/m", or "k" for "p/k/m".
func candidate(id string) policy.Candidate {
	if !strings.Contains(id, "/") {
		id = "p/" + id + "/m"
	}
	part := strings.Split(id, "/")
	return policy.Candidate{ID: id, Provider: part[0], Key: part[1], Model: part[2], Weight: 1}
}

// configure goes on with a new instance of the same plugin.
func (s *site) configure(config string) {
	s.t.Helper()
	p, err := s.plugin.Definition().Build(s.t.Context(), []byte(config))
	if err != nil {
		s.t.Fatal(err)
	}
	if p.Close != nil {
		s.t.Cleanup(func() {
			if err := p.Close(context.Background()); err != nil {
				s.t.Error(err)
			}
		})
	}
	s.Selector, s.Observer, s.Operable = p.Selection, p.Observer, p.Selection.(policy.Operable)
}

func (s *site) candidate(id string) *policy.Candidate {
	s.t.Helper()
	for i := range s.candidates {
		if c := &s.candidates[i]; c.ID == id || c.Key == id {
			return c
		}
	}
	s.t.Fatalf("no candidate %q", id)
	return nil
}

func (s *site) wait(d time.Duration) { s.setNow(s.now.Add(d)) }

func (s *site) setNow(now time.Time) {
	s.now = now
	s.clock.Store(&now)
}

// ask selects for a request, of which tests give the ID or more.
func (s *site) ask(req policy.Request) []policy.Verdict {
	s.t.Helper()
	if req.Format == "" {
		req.Format = "openai"
	}
	selection, err := s.Select(s.t.Context(), &policy.SelectRequest{Request: &req, Candidates: s.candidates})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(selection.Verdicts) != len(s.candidates) {
		s.t.Fatalf("%d verdicts on %d candidates", len(selection.Verdicts), len(s.candidates))
	}
	return selection.Verdicts
}

// expect compares the whole answer for a new request, one line a verdict:
// "k1 eligible". Instants are written relative to now.
func (s *site) expect(want ...string) {
	s.t.Helper()
	s.expectFor(s.newID(), want...)
}

func (s *site) expectFor(id string, want ...string) {
	s.t.Helper()
	var got []string
	for _, v := range s.ask(policy.Request{ID: id}) {
		name := v.Candidate
		if short := strings.Split(name, "/"); short[0] == "p" && short[2] == "m" {
			name = short[1]
		}
		until := v.Until
		v.Until = time.Time{}
		line := name + " " + describe(v.Status, v.Why)
		if !until.IsZero() {
			line += " for " + until.Sub(s.now).String()
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Errorf("request %s:\ngot  %s\nwant %s", id, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func (s *site) newID() string {
	s.requests++
	return fmt.Sprintf("r%d", s.requests)
}

// end tells how an attempt ended now, having begun now too unless change says
// otherwise.
func (s *site) end(id string, d policy.Disposition, change ...func(*policy.AttemptResult)) {
	s.t.Helper()
	s.endFor(s.newID(), id, d, change...)
}

func (s *site) endFor(request, id string, d policy.Disposition, change ...func(*policy.AttemptResult)) {
	s.t.Helper()
	res := policy.AttemptResult{
		RequestID: request, Attempt: 1, Candidate: *s.candidate(id),
		Format: "openai", Operation: "chat", Disposition: d, EndedAt: s.now,
	}
	for _, f := range change {
		f(&res)
	}
	s.Observe(s.t.Context(), res)
}

func took(d time.Duration) func(*policy.AttemptResult) {
	return func(res *policy.AttemptResult) { res.Duration = d }
}

func firstEventAfter(d time.Duration) func(*policy.AttemptResult) {
	return func(res *policy.AttemptResult) { res.FirstEvent = d }
}

func status(code int) func(*policy.AttemptResult) {
	return func(res *policy.AttemptResult) { res.Status = code }
}

func until(t time.Time) func(*policy.AttemptResult) {
	return func(res *policy.AttemptResult) { res.Until = t }
}

// open lets a key fail until its breaker opens, and waits until it is due.
func (s *site) openAndWait(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		for range 5 {
			s.end(id, policy.Overloaded)
		}
	}
	s.wait(time.Minute)
}
