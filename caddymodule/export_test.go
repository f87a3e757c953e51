package caddymodule

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/internal/pluginhost"
	"github.com/usherproxy/usher/policy"
)

// What tests of the configuration reach besides the exported parts.
var (
	ParseGlobalOption = parseGlobalOption
	ResolveSecret     = resolveSecret
)

type (
	Directory = directory
	Identity  = identity
)

func (c *Config) Check(plugins ...string) error { return c.check(plugins) }
func (c *Config) SetDefaults()                  { c.setDefaults() }

func (a *AppConfig) Check() error       { return a.check() }
func (a *AppConfig) SetDefaults()       { a.setDefaults() }
func (a *AppConfig) Policies() []string { return a.policies() }

func (c *Config) Candidates() []policy.Candidate { return c.catalog().all }

func (c *Config) CandidatesOf(model string) ([]policy.Candidate, bool) {
	return c.catalog().of(model)
}

func (c *Config) Directory(repl *caddy.Replacer) (*Directory, error) { return c.directory(repl) }

func (d *Directory) Identify(key string, repl *caddy.Replacer) (Identity, bool) {
	return d.identify(key, repl)
}

func (c *Config) Secrets(repl *caddy.Replacer) (map[string]string, error) { return c.secrets(repl) }

func (u *PolicyUse) Options(repl *caddy.Replacer) (json.RawMessage, error) { return u.options(repl) }

func (p *Plugin) Environ(repl *caddy.Replacer) ([]string, error) { return p.environ(repl) }

func (m SourceMap) At(pointer string) string { return m.at(pointer) }

// What tests of the pipeline reach.

type (
	Decision  = decision
	Decisions = decisions
	Lifetime  = lifetime
	Facts     = facts
	Hold      = hold
	Rate      = rate
	Waiting   = waiting
	Waiter    = waiter
	Verdict   = verdictRecord
)

func NewFacts() *Facts { return newFacts() }

func (f *facts) Describe(candidates []policy.Candidate, scopes []policy.Scope) ([]policy.Candidate, []policy.Scope) {
	return f.describe(candidates, scopes)
}

func (f *facts) Begin(c policy.Candidate, req *policy.Request) *Hold { return f.begin(c, req) }
func (f *facts) Learn(res policy.AttemptResult)                      { f.learn(res) }
func (f *facts) Arrive() int64                                       { return f.arrive() }

func (ws *waiting) Join(arrival int64) *Waiter { return ws.join(arrival) }
func (ws *waiting) Leave(w *Waiter)            { ws.leave(w) }

// Subjects returns how many keys and accounts are counted.
func (ws *waiting) Subjects() int {
	return len(ws.ranked.keys) + len(ws.ranked.accounts) + len(ws.skipped.keys) + len(ws.skipped.accounts)
}

func (ws *waiting) Judged(w *Waiter, ranked, skipped []policy.Candidate) {
	ws.judged(w, ranked, skipped)
}
func (ws *waiting) Concerned(res *policy.AttemptResult) bool { return ws.concerned(res) }
func (ws *waiting) Changed(res *policy.AttemptResult)        { ws.changed(res) }

// Woken returns the arrivals of those who were woken since the last time, in
// their order.
func (ws *waiting) Woken() []int64 {
	var woken []int64
	for _, w := range ws.all {
		select {
		case <-w.wake:
			woken = append(woken, w.arrival)
		default:
		}
	}
	return woken
}

// Due returns when those who were woken are to be judged, in their order.
func (ws *waiting) Due() []time.Time {
	var due []time.Time
	for _, w := range ws.all {
		due = append(due, <-w.wake)
	}
	return due
}

// Rates is how many windows of rates are counted.
func (f *facts) Rates() int { return len(f.rates) }

func (h *hold) End(usage *policy.Usage) { h.end(usage) }
func (h *hold) Undo()                   { h.undo() }

func (r *rate) Add(at, window time.Duration, n int64) { r.add(at, window, n) }

// Count returns what is counted, and when the first of it leaves the window.
func (r *rate) Count(now, window time.Duration) (total int64, resets time.Duration) {
	if r.expire(now, window); len(r.slots) > 0 {
		resets = r.resets(window)
	}
	return r.total, resets
}

func (l *lifetime) Enter() bool                                  { return l.enter() }
func (l *lifetime) Leave()                                       { l.leave() }
func (l *lifetime) End(ctx context.Context, quiet time.Duration) { l.end(ctx, quiet) }

const (
	KeptVerdicts = keptVerdicts
	MaxSteps     = maxSteps
	MaxVerdicts  = maxVerdicts
)

// DecisionOf returns a decision with selections of so many candidates.
func DecisionOf(id string, candidates ...int) *Decision {
	d := &Decision{ID: id}
	for _, n := range candidates {
		d.AddSelection(0, n)
	}
	return d
}

func (d *decision) AddSelection(at, candidates int) {
	d.addSelection(selectionRecord{At: milliseconds(at), Verdicts: make([]verdictRecord, candidates)})
}

func (d *decision) AddAdmission(at int) { d.addAdmission(admissionRecord{At: milliseconds(at)}) }

func (d *decisions) Add(one *Decision)        { d.add(one) }
func (d *decisions) Last(n int) []*Decision   { return d.last(n) }
func (d *decisions) Find(id string) *Decision { return d.find(id) }

const KeptDecisions = keptDecisions

type Origins = origins

func (o *origins) Learn(id, key string) { o.learn(id, key) }
func (o *origins) Of(id string) string  { return o.of(id) }

const KeptOrigins = keptOrigins

// Milliseconds returns d as explain shows it.
func Milliseconds(d time.Duration) string { return inMilliseconds(d).String() }

var (
	Explain       = explain
	FetchDecision = fetchDecision
	JoinPath      = joinPath
	KeyVersion    = keyVersion
	Operate       = operate
	PrintOperated = printOperated
	Nobody        = nobody
	Priority      = priority
)

// Steps returns the round trips for policies that are written as
// "plugin/policy", each as the names of its policies.
func Steps(selects []string, admit string) [][]string {
	plugins := make(map[string]*pluginhost.Plugin)
	build := func(name string) *use {
		plugin, _, _ := strings.Cut(name, "/")
		if plugins[plugin] == nil {
			plugins[plugin] = new(pluginhost.Plugin)
		}
		return &use{name: name, timeout: time.Second, plugin: plugins[plugin]}
	}
	var uses []*use
	for _, name := range selects {
		uses = append(uses, build(name))
	}
	var last *use
	if admit != "" {
		last = build(admit)
	}
	var out [][]string
	for _, st := range steps(uses, last) {
		var names []string
		for _, u := range st.selects {
			names = append(names, u.name)
		}
		if st.admit != nil {
			names = append(names, "admit "+st.admit.name)
		}
		if st.timeout() != time.Duration(len(names))*time.Second {
			panic("the time of a step is not that of its policies together")
		}
		out = append(out, names)
	}
	return out
}

// InUse reports whether anything is held for a configuration.
func InUse() bool {
	used := false
	for _, pool := range []*caddy.UsagePool{pluginPool, sharedPool, tracingPool} {
		pool.Range(func(any, any) bool {
			used = true
			return false
		})
	}
	return used
}

// Counted returns what runs, by key and by scope.
func Counted() map[string]int64 {
	counts := make(map[string]int64)
	if s := currentShared(); s != nil {
		s.facts.mu.Lock()
		defer s.facts.mu.Unlock()
		for key, n := range s.facts.keys {
			counts["in flight: "+key.provider+"/"+key.key] = int64(n)
		}
		maps.Copy(counts, s.facts.scopes)
	}
	return counts
}

// HoldBeginnings bounds for one test how long the beginning of an answer is
// held back.
func HoldBeginnings(t *testing.T, most time.Duration) {
	before := beginnings
	beginnings.MaxWait = most
	t.Cleanup(func() { beginnings = before })
}

var Pass = pass

type Budget = budget

func (b *budget) First(now time.Time)      { b.first(now) }
func (b *budget) Retry(now time.Time) bool { return b.retry(now) }

// Complete returns verdicts with one for each candidate without any.
func Complete(s policy.Selection, offered []policy.Candidate) []policy.Verdict {
	return complete(s, offered)
}
