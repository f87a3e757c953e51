package caddymodule_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

func TestRequestWaitsForAPlace(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	up.expect(t, 1)
	g.open()
	after(t, holder, "holder")
	r := after(t, waiter, "waiter")
	if r.StatusCode != http.StatusOK {
		t.Fatalf("status %s: %s", r.Status, r.body)
	}
	d := st.decision(r.id())
	if len(d.Admissions) != 1 || !d.Admissions[0].Waited || d.Admissions[0].Position != 1 || d.Admissions[0].Candidate == "" {
		t.Errorf("admissions %+v, want one that waited at place 1", d.Admissions)
	}
	if len(d.Selections) != 2 { // it is judged again
		t.Errorf("selections %+v, want two", d.Selections)
	}
	if v := d.Selections[0].Verdicts[0]; v.Verdict != policy.Busy || v.Reason != policy.ReasonKeyConcurrency || v.Observed != 1 || v.Limit != 1 {
		t.Errorf("first verdict %+v, want busy: key_concurrency, 1 of 1", v)
	}
	if v := d.Selections[1].Verdicts[0]; v.Verdict != policy.Eligible {
		t.Errorf("verdict after the wait %+v, want eligible", v)
	}
}

func TestWaitingRequestTakesTheFirstKeyThatIsFree(t *testing.T) {
	first, second := newGate(t), newGate(t)
	one, two := newUpstream(t, first.then(chats())), newUpstream(t, second.then(chats()), chats())
	one1 := func(u *upstream) string { return u.providerOf(key(1, "limit concurrency 1")) }
	st := serve(t, setup{usher: one1(one) + one1(two) + inOrder + model(one, two)})
	a := st.begin(chatBody)
	after(t, first.arrived, "the first request")
	b := st.begin(chatBody)
	after(t, second.arrived, "the second request")
	waiter := st.begin(chatBody)
	st.await(2, 1)
	second.open()
	r := after(t, waiter, "waiter")
	if got, want := r.Header.Get("X-Usher-Candidate"), two.name+"/k1/m"; got != want {
		t.Errorf("served by %q, want %q", got, want)
	}
	first.open()
	after(t, a, "first")
	after(t, b, "second")
}

// While the request waited for the only key, its provider refused it.
func TestWaitingRequestIsJudgedAgain(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(answers(http.StatusUnauthorized, failure("", "invalid_api_key"))))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	g.open()
	after(t, holder, "holder")
	r := after(t, waiter, "waiter")
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("X-Usher-Reason") != "account_invalid" || r.Header.Get("Retry-After") == "" {
		t.Errorf("status %s %s, want 503 account_invalid:\n%s", r.Status, r.body, st.explain(r.id()))
	}
	up.expect(t, 1)
}

func TestFullQueueIsRefused_B56(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + "admit fifo {\nqueue_limit 1\n}\n"})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(chatBody)
	st.await(1, 1)
	r := st.ask(chatBody, http.StatusTooManyRequests)
	if r.Header.Get("X-Usher-Reason") != "queue_full" || r.Header.Get("Retry-After") == "" || !strings.Contains(r.body, `"code":"queue_full"`) {
		t.Errorf("%v %s, want queue_full with Retry-After", r.Header, r.body)
	}
	d := st.decision(r.id())
	if d.Status != http.StatusTooManyRequests || d.Refusal != "queue_full" || d.Disposition != policy.Denied || d.Admissions[0].Rejected != policy.ReasonQueueFull {
		t.Errorf("decision %+v", d)
	}
	g.open()
	after(t, holder, "holder")
	after(t, waiter, "waiter")
}

// A refusal of the queue is not the fault of any key: nothing else is tried.
func TestQueueTimeoutIsNobodysFault_B33(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + "admit fifo {\nmax_wait 50ms\n}\n"})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	const more = 6 // than open the breaker
	for range more {
		r := st.ask(chatBody, http.StatusTooManyRequests)
		if got := r.Header.Get("X-Usher-Reason"); got != "queue_timeout" {
			t.Errorf("X-Usher-Reason %q, want queue_timeout", got)
		}
		st.expectAttempts(r)
	}
	g.open()
	after(t, holder, "holder")
	st.ask(chatBody, http.StatusOK)
	up.expect(t, 2)
}

// What a provider may take begins when it is asked.
func TestTimeInTheQueueIsNotTheProviders_B33(t *testing.T) {
	const most = 2 * time.Second
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), streams(streamAnswer))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1"), "timeout first_event "+most.String()) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	waiter := st.begin(streamBody)
	st.await(1, 1)
	time.Sleep(most + most/10)
	g.open()
	after(t, holder, "holder")
	if r := after(t, waiter, "waiter"); r.StatusCode != http.StatusOK || r.body != streamAnswer {
		t.Errorf("status %s: %s\n%s", r.Status, r.body, st.explain(r.id()))
	}
}

// callers is a site with callers of priority 10 and 0, by their keys.
const callers = "caller high {\nkey {env.TEST_KEY_2}\npriority 10\n}\ncaller low {\nkey {env.TEST_KEY_3}\n}\n"

func bearer(secret string) option { return header("Authorization", "Bearer "+secret) }

func TestHigherPriorityIsServedFirst(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + callers})
	holder := st.begin(chatBody, bearer(secret3))
	after(t, g.arrived, "the request that holds the key")
	body := func(tag string) string { return fmt.Sprintf(`{"model":"m","user":%q}`, tag) }
	var waiting []<-chan *reply
	for i, r := range []struct{ tag, key, priority string }{
		{"low", secret3, ""},
		{"wants more", secret3, "99"},
		{"asks for less", secret2, "-1"},
		{"high", secret2, ""},
	} {
		waiting = append(waiting, st.begin(body(r.tag), bearer(r.key), header("X-Usher-Priority", r.priority)))
		st.await(1, i+1)
	}
	g.open()
	after(t, holder, "holder")
	for _, w := range waiting {
		if r := after(t, w, "waiter"); r.StatusCode != http.StatusOK {
			t.Errorf("status %s: %s", r.Status, r.body)
		}
	}
	var order []string
	for _, h := range up.expect(t, 5)[1:] {
		order = append(order, strings.Split(h.body, `"`)[7])
		if h.Header.Get("X-Usher-Priority") != "" {
			t.Error("the provider sees the priority")
		}
	}
	if got, want := strings.Join(order, ", "), "high, low, wants more, asks for less"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestWithoutPoliciesTheFirstKeyInServiceServes(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "disabled")+key(2)) + model(up) + "select none\nadmit none\n"})
	r := st.ask(chatBody, http.StatusOK)
	if got := up.expect(t, 1)[0].Header.Get("Authorization"); got != "Bearer "+secret2 {
		t.Errorf("Authorization %q, want that of k2", got)
	}
	if d := st.decision(r.id()); len(d.Selections)+len(d.Admissions) != 0 {
		t.Errorf("decision %+v, want no decisions of policies", d)
	}
}

func TestWithoutPoliciesFailoverGoesOn(t *testing.T) {
	up := newUpstream(t, breaks(), chats())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + model(up) + "select none\nadmit none\n"})
	st.expectAttempts(st.ask(chatBody, http.StatusOK), "k1 500 upstream_error", "k2 200 ok")
}

func TestModelWhoseKeysAreAllOutOfServiceIsRefused(t *testing.T) {
	up := newUpstream(t, chats())
	for name, policies := range map[string]string{"none": "select none\n", "keys": ""} {
		t.Run(name, func(t *testing.T) {
			st := serve(t, setup{usher: up.providerOf(key(1, "disabled")) + model(up) + policies})
			r := st.ask(chatBody, http.StatusServiceUnavailable)
			if got := r.Header.Get("X-Usher-Reason"); got != "no_candidate" {
				t.Errorf("X-Usher-Reason %q, want no_candidate", got)
			}
		})
	}
	up.expect(t, 0)
}

// Tokens are reserved as an estimate; what was not used comes back.
func TestTokensThatWereNotUsedComeBack(t *testing.T) {
	for name, c := range map[string]struct {
		first  http.HandlerFunc
		status int
	}{
		"used less":           {chats(), 200},
		"mistake of a caller": {answers(400, failure("invalid_request_error", "")), 400},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.first, chats())
			st := serve(t, setup{usher: up.providerOf(key(1, "limit tokens 1000/1h")) + model(up) + "admit fifo {\nmax_wait 50ms\n}\n"})
			const body = `{"model":"m","max_tokens":900}`
			st.ask(body, c.status)
			st.await(0, 0)
			st.ask(body, http.StatusOK)
		})
	}
}

func TestTokensOfAFailedAttemptStaySpent(t *testing.T) {
	up := newUpstream(t, breaks(), chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "limit tokens 1000/1h")) + model(up) + "admit fifo {\nmax_wait 50ms\n}\n"})
	const body = `{"model":"m","max_tokens":900}`
	st.ask(body, http.StatusInternalServerError)
	st.await(0, 0)
	st.ask(body, http.StatusTooManyRequests)
}

// An upstream that is slow to answer delays nothing but its own request.
func TestSlowErrorIsNotWaitedForLong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five seconds")
	}
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(`{"error":`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, chats())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	began := time.Now()
	st.expectAttempts(st.ask(chatBody, http.StatusOK), "k1 500 upstream_error", "k2 200 ok")
	if took := time.Since(began); took > soon {
		t.Errorf("it took %s", took)
	}
}
