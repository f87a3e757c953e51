package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
)

// wantTrace is what a complete trace of a request has.
type wantTrace struct {
	outermost string   // name of the span under the caller's; empty: any
	attempts  int      // client spans
	verdicts  []string // candidates that selection must have judged
	admitted  bool
}

// check returns what is wrong with the trace.
func (w wantTrace) check(spans []*span, caller traceContext) error {
	var errs []error
	var outermost, servers, attempts, plugins int
	admitted := false
	verdicts := map[string]bool{}
	for _, s := range spans {
		switch {
		case s.ParentID == caller.spanID:
			outermost++
			if w.outermost != "" && s.Name != w.outermost {
				errs = append(errs, fmt.Errorf("the outermost span is %q, want %q", s.Name, w.outermost))
			}
		case s.parent == nil:
			errs = append(errs, fmt.Errorf("the span %q has no parent here", s.Name))
		}
		if s.End == "" || s.End == "0" {
			errs = append(errs, fmt.Errorf("the span %q has no end", s.Name))
		}
		switch {
		case s.service != "usher" && (s.under("usher.select") || s.under("usher.admit")):
			plugins++
		case s.service != "usher": // such as that of a release, which comes after all
		case s.Kind == kindServer:
			servers++
		case s.Kind == kindClient && s.Name == "chat gpt-4o":
			attempts++
		case s.Name == "usher.select":
			for _, e := range s.Events {
				if e.Attrs.text("usher.verdict") != "" {
					verdicts[e.Attrs.text("usher.candidate")] = true
				}
			}
		case s.Name == "usher.admit":
			for _, e := range s.Events {
				admitted = admitted || e.Name == "admitted"
			}
		}
	}
	for _, c := range w.verdicts {
		if !verdicts[c] {
			errs = append(errs, fmt.Errorf("no event tells the verdict on %s; there are %v", c, verdicts))
		}
	}
	if outermost != 1 || servers < 1 {
		errs = append(errs, fmt.Errorf("%d spans are below the caller's, want 1; %d are a server's", outermost, servers))
	}
	if attempts != w.attempts || admitted != w.admitted || plugins == 0 {
		errs = append(errs, fmt.Errorf("%d attempts, want %d; admitted %v, want %v; %d spans of plugins", attempts, w.attempts, admitted, w.admitted, plugins))
	}
	return errors.Join(errs...)
}

func TestEachRequestHasOneCompleteTrace(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	p := startProvider(t, "key k1 sk-e2e-one\nkey k2 sk-e2e-two\ntokens 100000\ntokens_per_second 100")
	refusing := startProvider(t, "key k1 sk-e2e-one {\nstatus 503\n}\nkey k2 sk-e2e-two {\nstatus 503\n}")
	config := fmt.Sprintf(`
		provider first %s {
			key k1 {env.E2E_KEY_1}
		}
		provider second %s {
			priority 1
			key k1 {env.E2E_KEY_1}
			key k2 {env.E2E_KEY_2} {
				disabled
			}
		}
		model gpt-4o {
			serve first
			serve second
		}
		model gpt-4o-mini second gpt-4o
		`, refusing.url, p.url)
	both := []string{"first/k1/gpt-4o", "second/k1/gpt-4o", "second/k2/gpt-4o"}
	for name, site := range map[string]struct {
		directives, outermost string
	}{
		"alone":                 {},
		"under Caddy's tracing": {"tracing {\nspan edge\n}", "edge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUsher(t, setup{site: site.directives, usher: config, env: append(c.env(), keyEnv...)})
			client := newClient(u.url)
			// The mini model has one provider only, so its first attempt succeeds.
			for name, test := range map[string]struct {
				model string
				leave bool
				want  wantTrace
			}{
				"answered":           {"gpt-4o-mini", false, wantTrace{site.outermost, 1, both[1:], true}},
				"failed over":        {"gpt-4o", false, wantTrace{site.outermost, 2, both, true}},
				"left by its client": {"gpt-4o-mini", true, wantTrace{site.outermost, 1, both[1:], true}},
			} {
				t.Run(name, func(t *testing.T) {
					caller := newTraceContext()
					a := ask{tag: caller.traceID, model: test.model, header: http.Header{"Traceparent": {caller.header()}}}
					if test.leave {
						request := client.begin(t, a)
						p.startOf(t, longTime, a.tag)
						request.leave()
					} else {
						a.tokens = 3
						ctx, cancel := context.WithTimeout(t.Context(), longTime)
						defer cancel()
						if err := client.chat(ctx, a).ok(); err != nil {
							t.Fatal(err)
						}
					}
					eventually(t, longTime, func() error {
						spans := c.trace(t, caller.traceID)
						if err := test.want.check(spans, caller); err != nil {
							return fmt.Errorf("%w\nin\n%s", err, show(spans))
						}
						return nil
					})
				})
			}
		})
	}
}

// The story is complete also where the client left before its turn.
func TestARequestThatLeavesTheQueueHasOneCompleteTrace(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	p := startProvider(t, twoKeys(1, 1, "tokens 100000\ntokens_per_second 100"))
	u := startUsher(t, setup{usher: p.upstream(1, 1), env: append(c.env(), keyEnv...)})
	client := newClient(u.url)
	for i := range 2 {
		client.begin(t, ask{tag: "runs"})
		p.running(t, longTime, i+1)
	}
	caller := newTraceContext()
	waits := client.begin(t, ask{tag: "waits", header: http.Header{"Traceparent": {caller.header()}}})
	u.waiting(t, 1)
	waits.leave()
	want := wantTrace{verdicts: []string{"openai/k1/gpt-4o", "openai/k2/gpt-4o"}}
	eventually(t, longTime, func() error {
		spans := c.trace(t, caller.traceID)
		if err := want.check(spans, caller); err != nil {
			return fmt.Errorf("%w\nin\n%s", err, show(spans))
		}
		return nil
	})
}
