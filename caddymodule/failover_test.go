package caddymodule_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

// attempts returns "k1 429 rate_limited" for each attempt of a request.
func attempts(d *caddymodule.Decision) []string {
	var out []string
	for _, a := range d.Attempts {
		key := strings.Split(a.Candidate, "/")[1]
		out = append(out, fmt.Sprintf("%s %d %s", key, a.Status, a.Disposition))
	}
	return out
}

func (st *site) expectAttempts(r *reply, want ...string) {
	st.t.Helper()
	if diff := cmp.Diff(want, attempts(st.decision(r.id()))); diff != "" {
		st.t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// expectRetryAfter checks Retry-After, which is less by the seconds that have begun
// since what it tells of: since the site began at most.
func (r *reply) expectRetryAfter(t *testing.T, seconds int) {
	t.Helper()
	got, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || got > seconds || got < seconds-1-int(r.since/time.Second) {
		t.Errorf("Retry-After %q, want %d", r.Header.Get("Retry-After"), seconds)
	}
}

func TestFailoverTakesTheNextKeyWithTheWholeBody_B59(t *testing.T) {
	for first, answer := range map[string]http.HandlerFunc{"k1 429 rate_limited": limited("Retry-After", "7"), "k1 0 upstream_error": drops} {
		t.Run(first, func(t *testing.T) {
			up := newUpstream(t, answer, chats())
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
			r := st.ask(chatBody, http.StatusOK)
			if r.body != chatAnswer {
				t.Errorf("body %q, want %q", r.body, chatAnswer)
			}
			if got, want := r.Header.Get("X-Usher-Candidate"), up.name+"/k2/m"; got != want {
				t.Errorf("X-Usher-Candidate %q, want %q", got, want)
			}
			for i, h := range up.expect(t, 2) {
				secret := []string{secret1, secret2}[i]
				if got := h.Header.Get("Authorization"); got != "Bearer "+secret {
					t.Errorf("attempt %d: Authorization %q, want that of %s", i+1, got, secret)
				}
				if h.body != chatBody || h.err != nil {
					t.Errorf("attempt %d: body %q, %v, want %q", i+1, h.body, h.err, chatBody)
				}
			}
			st.expectAttempts(r, first, "k2 200 ok")
		})
	}
}

// drops reads the request and ends the connection without an answer.
func drops(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// What may be better on another key is tried there, and nothing else.
func TestFailoverFollowsTheDisposition(t *testing.T) {
	fails := func(status int, kind, code string) http.HandlerFunc { return answers(status, failure(kind, code)) }
	for name, c := range map[string]struct {
		first  http.HandlerFunc
		status int
		want   []string
	}{
		"bad request":     {fails(400, "invalid_request_error", ""), 400, []string{"k1 400 client_fault"}},
		"unknown model":   {fails(404, "invalid_request_error", "model_not_found"), 404, []string{"k1 404 client_fault"}},
		"odd words":       {fails(422, "BadRequestError", "x"), 422, []string{"k1 422 client_fault"}},
		"no error at all": {answers(400, "bad"), 400, []string{"k1 400 client_fault"}},
		"key refused":     {fails(401, "invalid_request_error", "invalid_api_key"), 200, []string{"k1 401 auth_failed", "k2 200 ok"}},
		"bare 401":        {answers(401, ""), 200, []string{"k1 401 upstream_error", "k2 200 ok"}},
		"rate limit":      {limited(), 200, []string{"k1 429 rate_limited", "k2 200 ok"}},
		"quota":           {fails(429, "insufficient_quota", "insufficient_quota"), 200, []string{"k1 429 quota_exhausted", "k2 200 ok"}},
		"payment":         {answers(402, "{}"), 200, []string{"k1 402 quota_exhausted", "k2 200 ok"}},
		"too many tokens": {
			answers(429, `{"error":{"message":"Request too large for m","code":"rate_limit_exceeded"}}`), 200,
			[]string{"k1 429 context_length", "k2 200 ok"},
		},
		"too many of Groq": {
			answers(413, `{"error":{"message":"Request too large for model m on tokens per minute","code":"rate_limit_exceeded"}}`), 200,
			[]string{"k1 413 context_length", "k2 200 ok"},
		},
		"error":          {breaks(), 200, []string{"k1 500 upstream_error", "k2 200 ok"}},
		"overload":       {answers(503, ""), 200, []string{"k1 503 overloaded", "k2 200 ok"}},
		"529":            {answers(529, ""), 200, []string{"k1 529 overloaded", "k2 200 ok"}},
		"redirect":       {answers(307, "", "Location", "/elsewhere"), 200, []string{"k1 307 upstream_error", "k2 200 ok"}},
		"no answer":      {drops, 200, []string{"k1 0 upstream_error", "k2 200 ok"}},
		"status of none": {answers(601, ""), 200, []string{"k1 601 upstream_error", "k2 200 ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.first, chats())
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
			st.expectAttempts(st.ask(chatBody, c.status), c.want...)
			up.expect(t, len(c.want))
		})
	}
}

func TestFailoverPassesAProviderThatCannotBeReached(t *testing.T) {
	gone, up := newAbsent(t), newUpstream(t, chats())
	st := serve(t, setup{usher: gone.provider() + up.provider() + inOrder + model(gone, up)})
	r := st.ask(chatBody, http.StatusOK)
	st.expectAttempts(r, "k1 0 connect_failed", "k1 200 ok")
	if a := st.decision(r.id()).Attempts[0]; !strings.Contains(a.Error, "connection refused") {
		t.Errorf("error %q of the attempt does not tell why", a.Error)
	}
}

func TestAttemptsHaveACeiling_B57(t *testing.T) {
	up := newUpstream(t, breaks())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)+key(3)) + inOrder + model(up) + "attempts 2\n"})
	r := st.ask(chatBody, http.StatusInternalServerError)
	if r.body != failure("server_error", "") {
		t.Errorf("body %q, want the provider's own", r.body)
	}
	st.expectAttempts(r, "k1 500 upstream_error", "k2 500 upstream_error")
	up.expect(t, 2)
}

// A mistake of one caller must not take the key from all others.
func TestFaultOfTheCallerIsNotBookedOnTheKey_B46(t *testing.T) {
	up := newUpstream(t, answers(http.StatusNotFound, failure("invalid_request_error", "model_not_found")))
	st := serve(t, setup{usher: up.provider() + model(up)})
	const more = 7 // than open the breaker
	for range more {
		st.expectAttempts(st.ask(chatBody, http.StatusNotFound), "k1 404 client_fault")
	}
	up.expect(t, more)
}

// Some providers say 401 of a model that they do not have.
func TestModelThatAProviderRefusesCostsNoKey_B44(t *testing.T) {
	unknown := answers(http.StatusUnauthorized, `{"error":{"message":"there is no model m"}}`)
	up := newUpstream(t, unknown, unknown, unknown, unknown, unknown, unknown, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	for range 6 { // more than open the breaker
		st.ask(chatBody, http.StatusNotFound).expectRefusal(t, http.StatusNotFound, "model_not_found")
	}
	st.await(0, 0)
	st.ask(chatBody, http.StatusOK)
}

func TestPromptThatIsTooLongForAModelIsTriedOnOthersOnly(t *testing.T) {
	tooLong := answers(http.StatusBadRequest, failure("invalid_request_error", "context_length_exceeded"))
	small, large := newUpstream(t, tooLong), newUpstream(t, chats())
	for name, c := range map[string]struct {
		models string
		status int
		want   []string
	}{
		"same model":  {model(small), 400, []string{"k1 400 context_length"}},
		"other model": {fmt.Sprintf("model m {\nserve %s\nserve %s larger\n}\n", small.name, large.name), 200, []string{"k1 400 context_length", "k1 200 ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := serve(t, setup{usher: small.providerOf(key(1)+key(2)) + large.provider() + inOrder + c.models})
			st.expectAttempts(st.ask(chatBody, c.status), c.want...)
		})
	}
}

func TestProvidersUnauthorizedNeverReachesACaller(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
		reason string
	}{
		"key refused":         {failure("invalid_request_error", "invalid_api_key"), 503, "auth_failed"},
		"nothing said":        {"", 502, "upstream_error"},
		"B44 about the model": {`{"error":{"message":"there is no model m"}}`, 404, "model_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, answers(http.StatusUnauthorized, c.body, "WWW-Authenticate", "Bearer"))
			st := serve(t, setup{usher: up.provider() + model(up)})
			r := st.ask(chatBody, c.status)
			if got := r.Header.Get("X-Usher-Reason"); got != c.reason {
				t.Errorf("X-Usher-Reason %q, want %q", got, c.reason)
			}
			if strings.Contains(r.body, "told by the provider") || r.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("the provider's own words are passed on: %s %v", r.body, r.Header)
			}
		})
	}
}

func TestRedirectsAreNeitherFollowedNorPassedOn_B85(t *testing.T) {
	other := newUpstream(t, chats())
	up := newUpstream(t, answers(http.StatusTemporaryRedirect, "", "Location", other.URL+chatPath))
	st := serve(t, setup{usher: up.provider() + model(up)})
	r := st.ask(chatBody, http.StatusBadGateway)
	if r.Header.Get("Location") != "" || r.Header.Get("X-Usher-Reason") != "upstream_error" {
		t.Errorf("header %v, want a refusal without a location", r.Header)
	}
	up.expect(t, 1)
	other.expect(t, 0)
}

func TestRefusalOfAProviderIsPassedOnAsSuch(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		want   int
	}{
		"B56 in seconds":             {[]string{"Retry-After", "9"}, 9},
		"B53 as a date":              {[]string{"Retry-After", "in 30s"}, 30},
		"B53 beside one of no sense": {[]string{"Retry-After-Ms", "", "Retry-After", "7"}, 7},
		"of no sense":                {[]string{"Retry-After", "soon", "Retry-After-Ms", "4000"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				fields := slices.Clone(c.fields)
				if fields[1] == "in 30s" {
					fields[1] = time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
				}
				limited(fields...)(w, r)
			})
			st := serve(t, setup{usher: up.provider() + model(up)})
			r := st.ask(chatBody, http.StatusTooManyRequests)
			r.expectRetryAfter(t, c.want)
			if reason := r.Header.Get("X-Usher-Reason"); reason != "" {
				t.Errorf("X-Usher-Reason %q: the refusal is not Usher's", reason)
			}
			if r.body != failure("rate_limit_error", "rate_limit_exceeded") {
				t.Errorf("body %q, want the provider's own", r.body)
			}
		})
	}
}

func TestRetryAfterIsThatOfTheFirstKeyToComeBack(t *testing.T) {
	up := newUpstream(t, limited("Retry-After", "5"), limited("Retry-After", "60"))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	st.ask(chatBody, http.StatusTooManyRequests).expectRetryAfter(t, 5)
}

func TestNobodyIsAskedWhileAllKeysCoolDown_B63(t *testing.T) {
	up := newUpstream(t, limited("Retry-After", "70"), limited("Retry-After", "30"))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	st.ask(chatBody, http.StatusTooManyRequests)
	st.await(0, 0) // the policies know
	for range 3 {
		r := st.ask(chatBody, http.StatusTooManyRequests)
		r.expectRetryAfter(t, 30)
		if got := r.Header.Get("X-Usher-Reason"); got != string(policy.ReasonCooldown) {
			t.Errorf("X-Usher-Reason %q, want cooldown", got)
		}
		if d := st.decision(r.id()); d.Disposition != policy.Denied || len(d.Attempts) != 0 || len(d.Admissions) != 0 {
			t.Errorf("decision %+v, want denied without attempts", d)
		}
	}
	up.expect(t, 2)
}

func TestLimitOfAKeyIsNotTriedWithItsOtherModels(t *testing.T) {
	up := newUpstream(t, limited("Retry-After", "7"), chats())
	models := fmt.Sprintf("model m {\nserve %s one\nserve %[1]s two\n}\n", up.name)
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + models})
	r := st.ask(chatBody, http.StatusOK)
	st.expectAttempts(r, "k1 429 rate_limited", "k2 200 ok")
}

// The failed attempt holds places of its caller and the fleet, too.
func TestFailoverFreesWhatTheFailedAttemptHeld(t *testing.T) {
	up := newUpstream(t, breaks(), chats())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up) + "limit concurrency 1\n"})
	r := st.ask(chatBody, http.StatusOK)
	for _, a := range st.decision(r.id()).Admissions {
		if a.Waited {
			t.Errorf("the request waited for itself:\n%s", st.explain(r.id()))
		}
	}
}

// One key fails while the other is busy: the request waits for that one before
// those who came later.
func TestFailoverKeepsThePlaceInLine(t *testing.T) {
	first, second := newGate(t), newGate(t)
	one := newUpstream(t, first.then(breaks()))
	two := newUpstream(t, second.then(chats()), chats())
	st := serve(t, setup{usher: one.provider() + two.providerOf(key(2, "limit concurrency 1")) + inOrder +
		model(one, two) + "model n " + two.name + "\n"})
	n := func(tag string) string { return `{"model":"n","messages":[],"user":"` + tag + `"}` }

	failing := st.begin(chatBody)
	after(t, first.arrived, "the request that fails")
	holder := st.begin(n("holder"))
	after(t, second.arrived, "the request that holds the second key")
	later := st.begin(n("later"))
	st.await(2, 1)
	first.open()
	st.await(1, 2)
	second.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, failing, "failing"), after(t, later, "later")} {
		if r.StatusCode != http.StatusOK {
			t.Errorf("status %s: %s", r.Status, r.body)
		}
	}
	hits := two.expect(t, 3)
	if !strings.Contains(hits[1].body, `"Hello"`) || !strings.Contains(hits[2].body, "later") {
		t.Errorf("the second key served %q and then %q", hits[1].body, hits[2].body)
	}
}

// While the request waited for the second key, its provider refused it.
func TestFailoverIsJudgedAgainAfterAWait(t *testing.T) {
	first, second := newGate(t), newGate(t)
	one := newUpstream(t, first.then(breaks()))
	two := newUpstream(t, second.then(answers(http.StatusUnauthorized, failure("", "invalid_api_key"))))
	st := serve(t, setup{usher: one.provider() + two.providerOf(key(2, "limit concurrency 1")) + inOrder +
		model(one, two) + "model n " + two.name + "\n"})

	failing := st.begin(chatBody)
	after(t, first.arrived, "the request that fails")
	holder := st.begin(`{"model":"n"}`)
	after(t, second.arrived, "the request that holds the second key")
	first.open()
	st.await(1, 1)
	second.open()
	if r := after(t, holder, "holder"); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %s, want 503", r.Status)
	}
	r := after(t, failing, "failing")
	if r.StatusCode != http.StatusBadGateway || r.Header.Get("X-Usher-Reason") != "upstream_error" {
		t.Errorf("status %s %s, want 502 upstream_error:\n%s", r.Status, r.body, st.explain(r.id()))
	}
	st.expectAttempts(r, "k1 500 upstream_error")
	two.expect(t, 1)
}

func TestFailoverIsRefusedByAFullQueue(t *testing.T) {
	first, second := newGate(t), newGate(t)
	one := newUpstream(t, first.then(breaks()))
	two := newUpstream(t, second.then(chats()), chats())
	st := serve(t, setup{usher: one.provider() + two.providerOf(key(2, "limit concurrency 1")) + inOrder +
		model(one, two) + "model n " + two.name + "\nadmit fifo {\nqueue_limit 1\n}\n"})

	failing := st.begin(chatBody)
	after(t, first.arrived, "the request that fails")
	holder := st.begin(`{"model":"n"}`)
	after(t, second.arrived, "the request that holds the second key")
	waiter := st.begin(`{"model":"n"}`)
	st.await(2, 1)
	first.open()
	r := after(t, failing, "failing")
	if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("X-Usher-Reason") != "queue_full" {
		t.Errorf("status %s %s, want 429 queue_full", r.Status, r.body)
	}
	st.expectAttempts(r, "k1 500 upstream_error")
	second.open()
	for _, r := range []*reply{after(t, holder, "holder"), after(t, waiter, "waiter")} {
		if r.StatusCode != http.StatusOK {
			t.Errorf("status %s: %s", r.Status, r.body)
		}
	}
}
