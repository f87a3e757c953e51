package caddymodule_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "of the random providers; 0 is a new one")

// ceiling is how often a request may be sent.
const ceiling = 3

// A random provider does anything that a provider may do, or may not. What it
// does to a request is given by the request's case and by its own name.
type randomProviders struct {
	seed uint64

	mu   sync.Mutex
	sent map[string][]sending // by case
}

// A sending is the stream that an attempt was answered with.
type sending struct {
	provider, text string // as far as it was sent
	whole          bool   // it is complete, and ended well
	aborted        bool   // the connection was broken off after it
	stream         bool
}

// random returns the random numbers for a case at a provider.
func (p *randomProviders) random(name string) *rand.Rand {
	h := fnv.New64()
	_, _ = io.WriteString(h, name)
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// at is the provider of the given name.
func (p *randomProviders) at(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		id := req.Header.Get("X-Case")
		r := p.random(name + id)
		s := sending{provider: name}
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.sent[id] = append(p.sent[id], s)
		}()
		pause(r)
		switch r.IntN(8) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			status := []int{400, 401, 404, 408, 429, 500, 502, 503, 529}[r.IntN(9)]
			answers(status, failure("x", []string{"", "rate_limit_exceeded", "invalid_api_key", "context_length_exceeded"}[r.IntN(4)]))(w, req)
		default:
			p.stream(w, r, name, id, &s)
		}
	}
}

func pause(r *rand.Rand) {
	if r.IntN(3) == 0 {
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
	}
}

// stream sends a stream in pieces. It may break off at any byte, end early, or
// tell an error at any event.
func (p *randomProviders) stream(w http.ResponseWriter, r *rand.Rand, name, id string, s *sending) {
	events := []string{": connected\n\n", "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"},\"finish_reason\":null}]}\n\n"}
	for i := range r.IntN(4) {
		events = append(events, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"%s %s %d 北\"},\"finish_reason\":null}]}\n\n", name, id, i))
	}
	events = append(events, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n")
	whole := true
	if r.IntN(4) == 0 {
		at := r.IntN(len(events))
		events, whole = append(events[:at:at], "data: {\"error\":{\"code\":\"server_is_overloaded\"}}\n\n"), false
	}
	text := strings.Join(events, "")
	cut := len(text)
	if r.IntN(3) == 0 {
		cut = r.IntN(len(text))
	}
	aborts := r.IntN(2) == 0
	s.stream, s.whole, s.aborted = true, whole && cut == len(text) && !aborts, aborts
	w.Header().Set("Content-Type", "text/event-stream")
	for _, piece := range split(r, text[:cut]) {
		s.text += piece
		_, _ = io.WriteString(w, piece)
		_ = http.NewResponseController(w).Flush()
		pause(r)
	}
	if aborts {
		panic(http.ErrAbortHandler)
	}
}

// A caller sees the bytes of one candidate, or one refusal; never two
// beginnings. The providers see no more than the ceiling of attempts, each of
// them one; and each lease is released once.
func TestWhateverProvidersDo_B36(t *testing.T) {
	for name, option := range map[string]string{"": "", "with heartbeats": "heartbeat 1ms\n"} {
		t.Run(name, func(t *testing.T) {
			providers := &randomProviders{seed: *seed, sent: make(map[string][]sending)}
			if providers.seed == 0 {
				providers.seed = rand.Uint64()
			}
			t.Logf("go test -run TestWhateverProvidersDo_B36 -seed %d", providers.seed)
			var ups []*upstream
			var config strings.Builder
			fmt.Fprintf(&config, "select none\nattempts %d\n%s", ceiling, option)
			for i := range 4 {
				up := newUpstream(t, providers.at(fmt.Sprint("p", i)))
				ups = append(ups, up)
				fmt.Fprintf(&config, "%smodel m%d {\n", up.provider(), i+1)
				for _, u := range ups {
					config.WriteString("serve " + u.name + "\n")
				}
				config.WriteString("}\n")
			}
			st := serve(t, setup{usher: config.String()})
			var group sync.WaitGroup
			cases := make(chan int)
			for range 8 {
				group.Go(func() {
					for i := range cases {
						providers.check(st, i)
					}
				})
			}
			for i := range 150 {
				if t.Failed() {
					break
				}
				cases <- i
			}
			close(cases)
			group.Wait()
			st.await(0, 0)
		})
	}
}

// check sends the request of a case.
func (p *randomProviders) check(st *site, i int) {
	id := fmt.Sprint("case-", i)
	r := p.random(id)
	candidates := 1 + r.IntN(4)
	ctx, leave := context.WithCancel(st.t.Context())
	defer leave()
	if r.IntN(10) == 0 {
		time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, leave)
	}
	trace := fmt.Sprintf("%016x%016x", r.Uint64()|1, i+1)
	resp, err := st.open(http.MethodPost, chatPath, strings.Replace(streamBody, `"m"`, fmt.Sprintf(`"m%d"`, candidates), 1),
		header("X-Case", id), within(ctx), inTrace(trace))
	var body []byte
	if err == nil {
		body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if ctx.Err() == nil {
		if resp == nil {
			st.t.Errorf("%s: %v", id, err)
			return
		}
		if why := p.judge(id, resp, string(body), err); why != "" {
			st.t.Errorf("%s: %s: status %d, error %v\n%q\nsent: %+v", id, why, resp.StatusCode, err, body, p.of(id))
		}
	}
	for deadline := time.Now().Add(2 * soon); ; time.Sleep(5 * time.Millisecond) {
		err := p.settled(id, trace, candidates)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			st.t.Error(err) // not Fatal, which would end a worker that others wait for
			return
		}
	}
}

// of returns what a case was sent, so far.
func (p *randomProviders) of(id string) []sending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent[id])
}

// judge says what is wrong with what the caller saw, or nothing.
func (p *randomProviders) judge(id string, resp *http.Response, body string, err error) string {
	for at := range len(body) {
		if strings.HasPrefix(body[at:], beat) && at > 0 && !strings.HasSuffix(body[:at], "\n\n") {
			return "a heartbeat stands inside an event"
		}
	}
	body = strings.ReplaceAll(body, beat, "")
	if resp.StatusCode != http.StatusOK {
		switch {
		case err != nil:
			return "a refusal is cut"
		case strings.Contains(body, "content"):
			return "a refusal has content"
		}
		return ""
	}
	text, told := body, false
	if before, _, ok := strings.Cut(body, `data: {"error":{"message"`); ok { // Usher's own, or what it passes on after a heartbeat
		text, told = before, true
	}
	if told && err == nil {
		return "an error looks like a whole answer"
	}
	if told && text == "" {
		return "" // a refusal after a heartbeat
	}
	var from []sending
	for _, s := range p.of(id) {
		if s.stream && strings.HasPrefix(s.text, text) {
			from = append(from, s)
		}
	}
	switch {
	case len(from) == 0:
		return "these are not the bytes of one candidate"
	case err == nil && !slices.ContainsFunc(from, func(s sending) bool { return s.text == text && ended(s) && !s.aborted }):
		return "a part looks whole"
	}
	return ""
}

// ended reports whether a stream said that it had ended: well, or by an error.
func ended(s sending) bool {
	return s.whole || strings.Contains(s.text, "\"finish_reason\":\"") || strings.Contains(s.text, "\"error\"")
}

// settled says what is still to come of a case, or is wrong with it.
func (p *randomProviders) settled(id, trace string, candidates int) error {
	sent := p.of(id)
	seen := make(map[string]bool)
	for _, s := range sent {
		if seen[s.provider] {
			return fmt.Errorf("%s: %s was tried twice", id, s.provider)
		}
		seen[s.provider] = true
	}
	if len(sent) > min(ceiling, candidates) {
		return fmt.Errorf("%s: %d attempts at %d candidates", id, len(sent), candidates)
	}
	admitted, released := 0, 0
	for _, s := range spans.trace(trace) {
		switch s.GetName() {
		case "fifo admit":
			admitted++
		case "fifo release":
			released++
		}
	}
	if admitted != released || len(sent) > admitted {
		return fmt.Errorf("%s: %d attempts, %d leases, %d released", id, len(sent), admitted, released)
	}
	return nil
}
