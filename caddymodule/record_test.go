package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
)

func TestTheLastDecisionsAreKept(t *testing.T) {
	t.Parallel()
	var d caddymodule.Decisions
	if got := d.Last(10); got == nil || len(got) != 0 {
		t.Errorf("Last of none = %v, want an empty list", got)
	}
	const n = caddymodule.KeptDecisions + 7
	for i := range n {
		d.Add(&caddymodule.Decision{ID: fmt.Sprint(i)})
	}
	if got := d.Last(2 * n); len(got) != caddymodule.KeptDecisions || got[0].ID != fmt.Sprint(n-1) || got[len(got)-1].ID != "7" {
		t.Errorf("Last returns %d, from %s to %s", len(got), got[0].ID, got[len(got)-1].ID)
	}
	if got := d.Last(3); len(got) != 3 || got[2].ID != fmt.Sprint(n-3) {
		t.Errorf("Last(3) = %v", got)
	}
	if d.Find("6") != nil || d.Find("7") == nil || d.Find(fmt.Sprint(n-1)) == nil || d.Find("none") != nil {
		t.Error("Find does not find the ones that are kept, and only those")
	}
}

func TestDecisionsAboutManyCandidatesAreFewer(t *testing.T) {
	t.Parallel()
	var d caddymodule.Decisions
	const n = caddymodule.KeptDecisions
	for i := range n {
		d.Add(caddymodule.DecisionOf(fmt.Sprint(i), caddymodule.KeptVerdicts/100))
	}
	if got := len(d.Last(n)); got != 100 {
		t.Errorf("%d decisions are kept, want 100", got)
	}
	d.Add(caddymodule.DecisionOf("large", 2*caddymodule.KeptVerdicts))
	if got := d.Last(n); len(got) != 1 || d.Find("large") == nil {
		t.Errorf("%d decisions are kept, want the last one in any case", len(got))
	}
	for i := range n {
		d.Add(&caddymodule.Decision{ID: fmt.Sprint(i)})
	}
	if got := len(d.Last(2 * n)); got != n {
		t.Errorf("%d decisions are kept, want %d again", got, n)
	}
}

func TestADecisionKeepsTheFirstAndTheLastSteps(t *testing.T) {
	t.Parallel()
	for _, candidates := range []int{1, 100, 5000} {
		d := caddymodule.DecisionOf("r", candidates, candidates)
		for i := range 1000 {
			d.AddSelection(i, candidates)
			d.AddAdmission(i)
		}
		n, m := len(d.Selections), len(d.Admissions)
		if d.Selections[0].At != 0 || d.Selections[n-1].At != 999 || d.Admissions[0].At != 0 || d.Admissions[m-1].At != 999 {
			t.Errorf("%d candidates: the first or the last step is not kept", candidates)
		}
		if n+m+d.Omitted != 2+2*1000 {
			t.Errorf("%d candidates: %d selections, %d admissions and %d omitted", candidates, n, m, d.Omitted)
		}
		if n > 2 && n*candidates > caddymodule.MaxVerdicts || n > caddymodule.MaxSteps || m > caddymodule.MaxSteps {
			t.Errorf("%d candidates: %d selections, %d admissions", candidates, n, m)
		}
	}
}

func TestExplainShowsNothingThatATerminalObeys(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[2Jb\nc\u009bd\u202ee"
	d := caddymodule.DecisionOf("r", 1)
	d.Caller, d.Model, d.Refusal = evil, evil, evil
	d.Selections[0].Verdicts[0].Detail = evil
	var b bytes.Buffer
	caddymodule.Explain(&b, d)
	for _, r := range b.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("explain shows %q", r)
		}
	}
	if lines := strings.Count(b.String(), "\n"); lines != 3 {
		t.Errorf("%d lines, want 3:\n%s", lines, b.String())
	}
}

func TestDecisionsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var d caddymodule.Decisions
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				d.Add(&caddymodule.Decision{ID: fmt.Sprint(i)})
				d.Find("50")
				d.Last(10)
			}
		})
	}
	wg.Wait()
	if got := len(d.Last(1000)); got != 400 {
		t.Errorf("%d decisions, want 400", got)
	}
}

func TestAdminShowsPluginsAndDecisions(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{global: plugins(t, "", "doorman"), usher: up.provider() + model(up)})
	var ids []string
	for range 3 {
		ids = append(ids, st.ask(chatBody, http.StatusOK).id())
	}
	st.decision(ids[2]) // is there
	var names []string
	for _, p := range st.status() {
		names = append(names, p.Name)
		if p.PID == 0 {
			t.Errorf("plugin %+v does not run", p)
		}
	}
	// Plugins of a configuration that has just ended may still be there.
	if !slices.IsSorted(names) || !slices.Contains(names, "builtin") || !slices.Contains(names, "doorman") {
		t.Errorf("plugins %s, want builtin and doorman", names)
	}
	var shown []string
	for _, d := range st.decisions() {
		shown = append([]string{d.ID}, shown...)
	}
	if diff := cmp.Diff(ids, shown); diff != "" {
		t.Errorf("decisions, oldest first (-want +got):\n%s", diff)
	}
	text := st.adminGet("/usher/decisions/"+ids[1], http.StatusOK)
	for _, part := range []string{`"id": "` + ids[1] + `"`, `"verdict": "eligible"`, `"candidate": "` + up.name + `/k1/m"`, `"input_tokens": 3`, `"duration_ms": `} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the decision lacks %s:\n%s", part, text)
		}
	}
	if text := st.adminGet("/usher/decisions/none", http.StatusNotFound); !strings.Contains(string(text), `no decision about request \"none\"; at most the last 1000 are kept`) {
		t.Errorf("answer %s", text)
	}
	for _, path := range []string{"/usher/status", "/usher/decisions", "/usher/decisions/" + ids[0]} {
		resp, err := http.Post(st.admin+path, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s, want 405", path, resp.Status)
		}
	}
}

func TestExplainAsksARunningInstance(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	address := strings.TrimPrefix(st.admin, "http://")
	first, last := st.ask(chatBody, http.StatusOK).id(), st.ask(chatBody, http.StatusOK).id()
	st.decision(last)
	for id, want := range map[string]string{"": last, first: first} {
		d, err := caddymodule.FetchDecision(address, id)
		if err != nil || d.ID != want {
			t.Errorf("FetchDecision(%q) = %v, %v, want %s", id, d, err, want)
		}
	}
	for _, c := range []struct{ address, id, want string }{
		{address, "none/x", `no decision about request "none/x"; at most the last 1000 are kept`},
		{"127.0.0.1:1", "", "no Usher answers at 127.0.0.1:1; start one, or name its admin API with --address: connection refused"},
	} {
		if _, err := caddymodule.FetchDecision(c.address, c.id); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ decision, want string }{
		"everything": {`{
			"id": "r1", "time": "2026-01-02T03:04:05Z", "caller": "alice", "group": "research", "operation": "chat", "model": "m", "stream": true, "priority": 5,
			"selections": [
				{"policy": "keys", "duration_ms": 0.055, "verdicts": [
					{"candidate": "p/k1/m", "verdict": "eligible"},
					{"candidate": "p/k2/m", "verdict": "busy", "reason": "key_concurrency", "observed": 4, "limit": 4},
					{"candidate": "p/k3/m", "verdict": "skipped", "reason": "cooldown", "detail": "asked for by the provider", "until": "2026-01-02T03:05:05Z"}]},
				{"policy": "cost", "duration_ms": 2000, "error": "the plugin died"}],
			"admissions": [
				{"at_ms": 3, "policy": "fifo", "candidate": "p/k1/m", "waited": true, "position": 3, "duration_ms": 1234.5},
				{"at_ms": 1260, "policy": "fifo", "candidate": "p/k2/m", "duration_ms": 0.1},
				{"at_ms": 1270, "policy": "fifo", "rejected": "queue_full", "duration_ms": 0.2},
				{"at_ms": 1280, "policy": "fifo", "error": "the plugin died", "duration_ms": 0.2}],
			"attempts": [
				{"at_ms": 1240, "attempt": 1, "candidate": "p/k1/m", "status": 429, "disposition": "rate_limited", "until": "2026-01-02T03:05:05Z", "duration_ms": 20},
				{"at_ms": 1265, "attempt": 2, "candidate": "p/k2/m", "disposition": "connect_failed", "error": "connection refused", "duration_ms": 1},
				{"at_ms": 1300, "attempt": 3, "candidate": "p/k4/m", "status": 200, "disposition": "ok", "first_event_ms": 300, "duration_ms": 61000, "usage": {"input_tokens": 9, "output_tokens": 20}}],
			"status": 200, "disposition": "ok", "duration_ms": 720000}`, `
request r1 by alice (research): chat m, streamed, priority 5
  select keys  0.055 ms  p/k1/m  eligible
                         p/k2/m  busy: key_concurrency, 4 of 4
                         p/k3/m  skipped: cooldown (asked for by the provider), until 03:05:05 (1m0s)
  select cost  2 s               failed: the plugin died
  admit fifo   1.23 s    p/k1/m  waited from place 3, admitted
  attempt 1    20 ms     p/k1/m  429 rate_limited, until 03:05:05
  admit fifo   0.1 ms    p/k2/m  admitted
  attempt 2    1 ms      p/k2/m  connect_failed (connection refused)
  admit fifo   0.2 ms            rejected: queue_full
  admit fifo   0.2 ms            failed: the plugin died
  attempt 3    61 s      p/k4/m  200 ok, first content after 300 ms, 9 + 20 tokens
  end          12m0s             answered 200: ok
`},
		"refused": {`{"id": "r2", "caller": "bob", "operation": "chat", "model": "m", "status": 404, "refusal": "model_not_found", "disposition": "client_fault", "duration_ms": 0.1}`, `
request r2 by bob: chat m
  end  0.1 ms    refused with 404: model_not_found
`},
		"left": {`{"id": "r3", "operation": "chat", "model": "m", "disposition": "client_gone", "duration_ms": 999.9}`, `
request r3: chat m
  end  1 s    no answer: client_gone
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d caddymodule.Decision
			if err := json.Unmarshal([]byte(c.decision), &d); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			caddymodule.Explain(&b, &d)
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), b.String()); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMillisecondsHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 55 * time.Microsecond: "0.055 ms", 1234 * time.Microsecond: "1.23 ms", 999400 * time.Microsecond: "999 ms",
		999900 * time.Microsecond: "1 s", 12345 * time.Millisecond: "12.3 s", 599 * time.Second: "599 s", time.Hour + time.Millisecond: "1h0m0s",
	} {
		if got := caddymodule.Milliseconds(d); got != want {
			t.Errorf("%s is shown as %s, want %s", d, got, want)
		}
	}
}
