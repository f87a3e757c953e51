package simulator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/usherproxy/usher/examples/simulator"
)

const chat = "/v1/chat/completions"

func tagged(tag string) string {
	return `{"model":"m","messages":[{"role":"user","content":"Hello #tag=` + tag + `"}]}`
}

// Invariant 2.
func TestConcurrencyIsNeverPassedUnnoticed(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider concurrency {
		latency 300ms
		key k1 sk-one {
			concurrency 1
			retry_after 1500ms
		}
	}`)
	var all sync.WaitGroup
	var mu sync.Mutex
	status := map[int]int{}
	for range 10 {
		all.Go(func() {
			r := ask(t, "POST", url+chat, "sk-one", tagged("c"))
			if r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") != "2" {
				t.Errorf("Retry-After is %q, want 2", r.header.Get("Retry-After"))
			}
			mu.Lock()
			defer mu.Unlock()
			status[r.status]++
		})
	}
	all.Wait()
	c := stats(t, url).Keys["k1"]
	if status[200] < 1 || status[200]+status[429] != 10 || c.OverLimit != status[429] || c.Requests != 10 || c.InFlight != 0 {
		t.Errorf("statuses %v, counts %+v", status, c)
	}
}

func TestAWindowEndsWithRetryAfter(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider window {
		key k1 sk-one {
			requests 2/1h
		}
	}`)
	var got []int
	for range 3 {
		r := ask(t, "POST", url+chat, "sk-one", tagged("w"))
		got = append(got, r.status)
		if r.status == 429 && r.header.Get("Retry-After") != "3600" {
			t.Errorf("Retry-After is %q, want the rest of the hour", r.header.Get("Retry-After"))
		}
	}
	if !slices.Equal(got, []int{200, 200, 429}) {
		t.Errorf("statuses %v", got)
	}
}

func TestAKeyMayAlwaysBeRefused(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider broke {
		key k1 sk-one {
			status 429 insufficient_quota
		}
	}`)
	r := ask(t, "POST", url+chat, "sk-one", tagged("b"))
	if r.status != 429 || !strings.Contains(r.body, `"code":"insufficient_quota"`) || !strings.Contains(r.body, `"type":"insufficient_quota"`) {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

func TestTheErrorRateIsSpreadEvenly(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider errors {
		error_rate 0.5
		error_status 503
	}`)
	var got []int
	for range 4 {
		got = append(got, ask(t, "POST", url+chat, "", tagged("e")).status)
	}
	if !slices.Equal(got, []int{200, 503, 200, 503}) {
		t.Errorf("statuses %v", got)
	}
}

// Invariant 1.
func TestALeavingClientEndsItsRequest(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider endless {
		latency 1h
	}`)
	for _, stream := range []string{"true", "false"} {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := send(ctx, t, "POST", url+chat, "", `{"model":"m","stream":`+stream+`,"messages":["#tag=left"]}`)
			left <- err
		}()
		eventually(t, url, "a request in flight", func(s simulator.Stats) bool { return s.InFlight == 1 })
		cancel()
		if err := <-left; err == nil {
			t.Error("the request was answered")
		}
		s := eventually(t, url, "no request in flight", func(s simulator.Stats) bool { return s.InFlight == 0 })
		last := s.Order[len(s.Order)-1]
		if last.Status != 499 || last.Tag != "left" || last.End.Before(last.Start) {
			t.Errorf("stream %s: recorded as %+v", stream, last)
		}
	}
}

// Invariant 1: who has seen the end may come again.
func TestTheEndOfAnAnswerIsTheEndOfItsRequest(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider ends {
		key k1 sk-one
	}`)
	const requests = 200
	for i := range requests {
		body := tagged("r")
		if i%2 == 0 {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		ask(t, "POST", url+chat, "sk-one", body)
		ask(t, "POST", url+"/v1/responses", "sk-one", `{"model":"m","input":"a","stream":true}`)
	}
	if c := stats(t, url).Keys["k1"]; c.MaxInFlight != 1 || c.Requests != 2*requests {
		t.Errorf("one request at a time was counted as %+v", c)
	}
}

func TestFaultsHitAKeyForAsLongAsTold(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider faults {
		key k1 sk-one
	}`)
	statuses := func(n int) (got []int) {
		for range n {
			got = append(got, ask(t, "POST", url+chat, "sk-one", tagged("f")).status)
		}
		return got
	}
	fault := func(method, body string, want int) {
		t.Helper()
		if r := ask(t, method, url+"/simulator/faults", "", body); r.status != want {
			t.Fatalf("%s %s: status %d: %s", method, body, r.status, r.body)
		}
	}
	fault("POST", `{"key":"k1","status":429,"retry_after":"3s","count":2}`, 204)
	r := ask(t, "POST", url+chat, "sk-one", tagged("f"))
	if r.status != 429 || r.header.Get("Retry-After") != "3" {
		t.Errorf("status %d, Retry-After %q", r.status, r.header.Get("Retry-After"))
	}
	if got := statuses(2); !slices.Equal(got, []int{429, 200}) {
		t.Errorf("a fault of two requests: then %v", got)
	}
	fault("POST", `{"key":"k1","status":500}`, 204)
	if got := statuses(3); !slices.Equal(got, []int{500, 500, 500}) {
		t.Errorf("a fault without end: %v", got)
	}
	fault("DELETE", ``, 204)
	if got := statuses(1); !slices.Equal(got, []int{200}) {
		t.Errorf("after the end: %v", got)
	}
	fault("POST", `{"status":200}`, 400)
	fault("POST", `{"status":500,"retry_after":"soon"}`, 400)
	fault("POST", `{"status":500,"cuont":2}`, 400)
}

func TestOrderTellsRequestsAsTheyCame(t *testing.T) {
	t.Parallel()
	url := start(t, `simulated_provider order`)
	for _, tag := range []string{"first", "second", "third"} {
		ask(t, "POST", url+chat, "sk-whatever", tagged(tag))
	}
	if got := orderOf(t, []byte(ask(t, "GET", url+"/simulator/stats", "", "").body)); got != "first second third" {
		t.Errorf("order %s", got)
	}
}

// orderOf returns the tags in stats whose requests have all been answered.
func orderOf(t *testing.T, b []byte) string {
	t.Helper()
	var s simulator.Stats
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, r := range s.Order {
		tags = append(tags, r.Tag)
		if r.Key != "any" || r.Operation != "chat" || r.Model != "m" || r.Status != 200 || r.End.Before(r.Start) {
			t.Errorf("recorded as %+v", r)
		}
	}
	return strings.Join(tags, " ")
}
