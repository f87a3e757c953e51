package caddymodule_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An answer may take longer than each of its parts.
func TestLongAnswersAreNotCutByTheTimesOfTheirParts_B97(t *testing.T) {
	const parts = 33
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		streams(": connected\n\n")(w, r)
		for range parts {
			time.Sleep(100 * time.Millisecond)
			streams(content)(w, r)
		}
		streams(streamAnswer)(w, r)
	})
	st := serve(t, setup{usher: up.provider("timeout first_event 3s", "timeout idle 3s") + model(up)})
	r := st.ask(streamBody, http.StatusOK)
	if want := ": connected\n\n" + strings.Repeat(content, parts) + streamAnswer; r.body != want {
		t.Errorf("got %q", r.body)
	}
}

// A place that is given at the very moment in which its request gives up goes
// to nobody, and is not lost.
func TestGrantAndRefusalAtTheSameMoment_B27(t *testing.T) {
	holding := make(chan chan struct{}, 1)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Holds") != "" {
			done := make(chan struct{})
			holding <- done
			<-done
		}
		chats()(w, r)
	})
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + "admit fifo {\nmax_wait 50ms\n}\n"})
	for range 30 {
		holder := st.begin(chatBody, header("X-Holds", "1"))
		release := after(t, holding, "the holder")
		waiter := st.begin(chatBody)
		time.AfterFunc(50*time.Millisecond, func() { close(release) })
		if r := after(t, waiter, "the waiter"); r.StatusCode != http.StatusOK && r.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status %s", r.Status)
		}
		if r := after(t, holder, "the holder"); r.StatusCode != http.StatusOK {
			t.Errorf("status %s", r.Status)
		}
		st.await(0, 0)
	}
	st.ask(chatBody, http.StatusOK)
}

// A limit counts what runs, however much else has run since.
func TestLimitHoldsBesideManyOtherRequests_B43(t *testing.T) {
	g := newGate(t)
	busy, other := newUpstream(t, g.then(chats())), newUpstream(t, chats())
	st := serve(t, setup{usher: busy.providerOf(key(1, "limit concurrency 2")) + other.provider() + model(busy) + "model n " + other.name + "\n"})
	var held []<-chan *reply
	for range 2 {
		held = append(held, st.begin(chatBody))
		after(t, g.arrived, "a request that holds the key")
	}
	for range 300 {
		st.ask(`{"model":"n"}`, http.StatusOK)
	}
	held = append(held, st.begin(chatBody))
	st.await(2, 1)
	busy.expect(t, 2)
	g.open()
	for _, r := range held {
		after(t, r, "a request of the key")
	}
}

// What a provider asks for is believed within reason, and never slept through.
func TestTimesThatProvidersAskForAreBelievedWithinReason_B55(t *testing.T) {
	const nothing = -1 // is asked for
	for asked, want := range map[string]int{
		"-5": nothing, "0": 0, "60": 60, "1800": 1800, "3600": 3600, "999999999999": 3600,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
	} {
		t.Run(asked, func(t *testing.T) {
			up := newUpstream(t, limited("Retry-After", asked))
			st := serve(t, setup{usher: up.provider() + model(up)})
			r := st.ask(chatBody, http.StatusTooManyRequests)
			if want > 0 {
				r.expectRetryAfter(t, want)
			}
			until := st.decision(r.id()).Attempts[0].Until
			if want == nothing {
				if got := r.Header.Get("Retry-After"); until != nil || got != "" {
					t.Errorf("left alone until %v, Retry-After %q; want neither", until, got)
				}
				return
			}
			if until == nil || time.Until(*until) > time.Duration(want)*time.Second {
				t.Errorf("left alone until %v, want %d s", until, want)
			}
		})
	}
}

// A provider on HTTP/2 may end a connection at any time: what runs on it ends
// well, and what comes next takes another one. Nothing is sent twice.
func TestConnectionsThatProvidersEndCostNoRequest_B148(t *testing.T) {
	var n atomic.Int64
	var mu sync.Mutex
	seen := make(map[string]int)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Header.Get("X-Case")]++
		mu.Unlock()
		if r.ProtoMajor != 2 {
			t.Errorf("asked by %s", r.Proto)
		}
		if n.Add(1)%5 == 0 {
			w.Header().Set("Connection", "close") // which is GOAWAY
		}
		chats()(w, r)
	})
	up.Close()
	up.Server = httptest.NewUnstartedServer(http.HandlerFunc(up.serve))
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	st := serve(t, setup{usher: up.provider("transport http {\ntls_insecure_skip_verify\n}") + model(up) + "attempts 1\n"})
	body := strings.Replace(chatBody, "Hello", strings.Repeat("x", 64<<10), 1)
	const requests = 60
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range requests / 4 {
				st.ask(body, http.StatusOK, header("X-Case", fmt.Sprint(worker, "/", i)))
			}
		})
	}
	group.Wait()
	if len(seen) != requests {
		t.Errorf("%d of %d requests came", len(seen), requests)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("request %s came %d times", id, times)
		}
	}
}

// What is no failure of a key is not tried with others.
func TestRequestThatIsNotToBeRetriedIsSentOnce_B57(t *testing.T) {
	up := newUpstream(t, answers(http.StatusNotFound, failure("invalid_request_error", "model_not_found")))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)+key(3)) + inOrder + model(up)})
	st.ask(chatBody, http.StatusNotFound)
	up.expect(t, 1)
}
