package caddymodule_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

// fallbacks lets the model m be served by the first upstream, and fall back to
// the models n1, n2 and so on, which the others serve.
func fallbacks(m string, ups ...*upstream) string {
	var b strings.Builder
	var names strings.Builder
	for i, u := range ups[1:] {
		fmt.Fprintf(&names, " n%d", i+1)
		fmt.Fprintf(&b, "model n%d %s\n", i+1, u.name)
	}
	return fmt.Sprintf("model m {\nserve %s\nfallback%s\n%s\n}\n", ups[0].name, names.String(), m) + b.String()
}

func TestRequestFallsBackToAnotherModel(t *testing.T) {
	tooLong := answers(http.StatusBadRequest, failure("invalid_request_error", "context_length_exceeded"))
	for name, c := range map[string]struct {
		first    http.HandlerFunc
		second   http.HandlerFunc
		status   int
		attempts []string
		model    string
		options  string
	}{
		"failed":              {breaks(), chats(), 200, []string{"k1 500 upstream_error", "k1 200 ok"}, "n1", ""},
		"limited":             {limited(), chats(), 200, []string{"k1 429 rate_limited", "k1 200 ok"}, "n1", ""},
		"too long":            {tooLong, chats(), 200, []string{"k1 400 context_length", "k1 200 ok"}, "n1", ""},
		"too long for larger": {tooLong, chats(), 200, []string{"k1 400 context_length", "k1 200 ok"}, "n1", "context 1000"},
		"the caller's fault":  {answers(http.StatusBadRequest, failure("", "")), chats(), 400, []string{"k1 400 client_fault"}, "", ""},
		"error before content": {
			streams(": a\n\n", "data: {\"error\":{\"code\":\"server_is_overloaded\"}}\n\n"), chats(), 200,
			[]string{"k1 200 overloaded", "k1 200 ok"},
			"n1", "",
		},
		"all fail": {breaks(), limited(), 429, []string{"k1 500 upstream_error", "k1 429 rate_limited"}, "n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := newUpstream(t, c.first), newUpstream(t, c.second)
			st := serve(t, setup{usher: one.provider() + two.provider() + fallbacks(c.options, one, two)})
			r := st.ask(chatBody, c.status)
			st.expectAttempts(r, c.attempts...)
			if got := r.Header.Get("X-Usher-Model"); got != c.model {
				t.Errorf("X-Usher-Model %q, want %q", got, c.model)
			}
			d := st.decision(r.id())
			if c.model != "" && (len(d.Fallbacks) != 1 || d.Fallbacks[0].Model != c.model || d.Model != "m") {
				t.Errorf("model %s, fallbacks %+v", d.Model, d.Fallbacks)
			}
			if hits := two.seen(); len(hits) > 0 && hits[0].body != strings.Replace(chatBody, `"m"`, `"n1"`, 1) {
				t.Errorf("the fallback was sent %q", hits[0].body)
			}
		})
	}
}

// The first model rests, so the request does not even try it.
func TestModelThatCoolsDownIsReplaced(t *testing.T) {
	one, two := newUpstream(t, limited("Retry-After", "60")), newUpstream(t, chats())
	st := serve(t, setup{usher: one.provider() + two.provider() + fallbacks("", one, two)})
	st.ask(chatBody, http.StatusOK)
	st.await(0, 0) // the policies know
	r := st.ask(chatBody, http.StatusOK)
	st.expectAttempts(r, "k1 200 ok")
	if got := r.Header.Get("X-Usher-Model"); got != "n1" {
		t.Errorf("X-Usher-Model %q", got)
	}
	one.expect(t, 1)
}

func TestFallbacksAreTriedInTheirOrder(t *testing.T) {
	one, two, three := newUpstream(t, breaks()), newUpstream(t, breaks()), newUpstream(t, chats())
	st := serve(t, setup{usher: one.provider() + two.provider() + three.provider() + fallbacks("", one, two, three)})
	r := st.ask(chatBody, http.StatusOK)
	st.expectAttempts(r, "k1 500 upstream_error", "k1 500 upstream_error", "k1 200 ok")
	if d := st.decision(r.id()); len(d.Fallbacks) != 2 || d.Fallbacks[1].Model != "n2" {
		t.Errorf("fallbacks %+v", d.Fallbacks)
	}
}

// What waits is served by its own model: a fallback is for what cannot be.
func TestRequestThatMayWaitDoesNotFallBack(t *testing.T) {
	g := newGate(t)
	one, two := newUpstream(t, g.then(chats())), newUpstream(t, chats())
	st := serve(t, setup{usher: one.providerOf(key(1, "limit concurrency 1")) + two.provider() + fallbacks("", one, two)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the first request")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	g.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, waiter, "waiter")} {
		if r.Header.Get("X-Usher-Model") != "" || r.StatusCode != http.StatusOK {
			t.Errorf("%s from %s", r.Status, r.Header.Get("X-Usher-Candidate"))
		}
	}
	two.expect(t, 0)
}

// A queue that is full turns the request away, and so it falls back.
func TestRequestThatMayNotWaitFallsBack(t *testing.T) {
	g := newGate(t)
	one, two := newUpstream(t, g.then(chats())), newUpstream(t, chats())
	st := serve(t, setup{usher: one.providerOf(key(1, "limit concurrency 1")) + two.provider() + fallbacks("", one, two) +
		"admit fifo {\nqueue_limit 1\n}\n"})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the first request")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	if r := st.ask(chatBody, http.StatusOK); r.Header.Get("X-Usher-Model") != "n1" {
		t.Errorf("served by %s", r.Header.Get("X-Usher-Candidate"))
	}
	g.open()
	after(t, holder, "holder")
	after(t, waiter, "waiter")
}

func TestFallbackEndsWithItsCaller(t *testing.T) {
	g := newGate(t)
	one, two := newUpstream(t, g.then(breaks())), newUpstream(t, chats())
	st := serve(t, setup{usher: one.provider() + two.provider() + fallbacks("", one, two)})
	ctx, leave := context.WithCancel(t.Context())
	done := st.begin(chatBody, within(ctx))
	after(t, g.arrived, "the request")
	leave()
	<-done
	st.await(0, 0)
	two.expect(t, 0)
}

// A prompt that was too long goes to those only who have a larger window.
func TestPromptThatIsTooLongGoesToLargerWindowsOnly(t *testing.T) {
	tooLong := answers(http.StatusBadRequest, failure("invalid_request_error", "context_length_exceeded"))
	small, same, large := newUpstream(t, tooLong), newUpstream(t, chats()), newUpstream(t, chats())
	st := serve(t, setup{usher: small.provider() + same.provider() + large.provider() + inOrder + fmt.Sprintf(`model m {
		context 1000
		serve %s
		serve %s other
		serve %s larger {
			context 2000
		}
	}
	`, small.name, same.name, large.name)})
	st.expectAttempts(st.ask(chatBody, http.StatusOK), "k1 400 context_length", "k1 200 ok")
	same.expect(t, 0)
	large.expect(t, 1)
}

// A timeout that took most of the time is not tried again.
func TestRequestIsNotSentAgainWithoutTheTimeForIt(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(streams(streamAnswer)))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2), "timeout first_event 5s") + inOrder + model(up) + "timeout 7400ms\n"})
	r := st.ask(streamBody, http.StatusGatewayTimeout)
	st.expectAttempts(r, "k1 0 timeout")
	if got := st.decision(r.id()).Attempts[0].NoRetry; got != "time" {
		t.Errorf("no retry because of %q, want time", got)
	}
	up.expect(t, 1)
}

// Requests that fail at a provider are sent there again only so often. Other
// providers may have them.
func TestRetriesAtAProviderThatFailsHaveABudget(t *testing.T) {
	const requests = 40
	up, other := newUpstream(t, breaks()), newUpstream(t, chats())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + other.provider() +
		model(up) + "model n {\nserve " + up.name + "\nserve " + other.name + "\n}\nselect none\n"})
	for range requests {
		st.ask(chatBody, http.StatusInternalServerError)
	}
	most := requests + 10 + requests/5
	if n := len(up.seen()); n > most || n <= requests+10 {
		t.Errorf("the provider got %d requests, want more than %d and at most %d", n, requests+10, most)
	}
	if d := st.last(); len(d.Attempts) != 1 || d.Attempts[0].NoRetry != "budget" {
		t.Errorf("attempts %+v, want one without a retry for want of budget", d.Attempts)
	}
	st.ask(`{"model":"n"}`, http.StatusOK)
	other.expect(t, 1)
}

func TestBudgetForgets(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var b caddymodule.Budget
	spend := func() (n int) {
		for b.Retry(now) {
			n++
		}
		return n
	}
	if n := spend(); n != 10 {
		t.Errorf("without requests %d retries, want 10", n)
	}
	now = now.Add(5 * time.Second)
	for range 50 {
		b.First(now)
	}
	if n := spend(); n != 10 {
		t.Errorf("with 50 requests %d more retries, want 10", n)
	}
	now = now.Add(5 * time.Second) // the first 10 are forgotten
	if n := spend(); n != 10 {
		t.Errorf("after a while %d more retries, want 10", n)
	}
	now = now.Add(time.Hour)
	if n := spend(); n != 10 {
		t.Errorf("after an hour %d retries, want 10", n)
	}
	now = now.Add(-time.Minute) // a clock that goes back
	if b.Retry(now) {
		t.Error("a clock that goes back gives retries")
	}
}

func TestFallbackKeepsWhatItCounts(t *testing.T) {
	one, two := newUpstream(t, breaks()), newUpstream(t, streams(streamAnswer))
	st := serve(t, setup{usher: one.provider() + two.provider() + fallbacks("limit concurrency 1", one, two)})
	r := st.ask(streamBody, http.StatusOK)
	if d := st.decision(r.id()); d.Disposition != policy.OK || d.Attempts[1].Usage == nil {
		t.Errorf("want ok with usage:\n%s", st.explain(r.id()))
	}
	st.ask(streamBody, http.StatusOK)
}
