package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A turnstile is a provider that counts, and that keeps requests for as long as the
// test wants. Like the simulated one it runs in the process of the test.
type turnstile struct {
	url string

	mu      sync.Mutex // guards all below
	held    []string   // the beginnings of the tags of those that are kept
	changed chan struct{}
	passes  []*passage
	running int
	most    int // ran at once
}

// A passage is a request that came through. End is zero while it runs.
type passage struct {
	tag        string
	start, end time.Time
}

func startTurnstile(t *testing.T) *turnstile {
	t.Helper()
	s := &turnstile{changed: make(chan struct{})}
	srv := httptest.NewServer(s)
	s.url = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return s
}

// ServeHTTP answers a chat request that is not streamed.
func (s *turnstile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct{ Content string }
	}
	b, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(b, &body) != nil || len(body.Messages) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, tag, _ := strings.Cut(body.Messages[0].Content, "#tag=")
	p := s.enter(tag)
	for {
		changed := s.keeps(tag)
		if changed == nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-r.Context().Done():
		}
		break
	}
	s.leave(p) // before its caller knows
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(w, `{"id":"1","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"finish_reason":"stop",`+
		`"message":{"role":"assistant","content":"Hello"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
}

func (s *turnstile) enter(tag string) *passage {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &passage{tag: tag, start: time.Now()}
	s.passes = append(s.passes, p)
	s.running++
	s.most = max(s.most, s.running)
	return p
}

func (s *turnstile) leave(p *passage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.end = time.Now()
	s.running--
}

// keeps returns what ends when requests of other tags are kept, or nil if this one
// is not.
func (s *turnstile) keeps(tag string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.held, func(prefix string) bool { return strings.HasPrefix(tag, prefix) }) {
		return s.changed
	}
	return nil
}

// keep keeps the requests whose tags begin with one of these, and lets all others go.
func (s *turnstile) keep(prefixes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = prefixes
	close(s.changed)
	s.changed = make(chan struct{})
}

// seen returns the requests that have come through, in order.
func (s *turnstile) seen() []passage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]passage, len(s.passes))
	for i, p := range s.passes {
		all[i] = *p
	}
	return all
}

// runs waits until n requests run, all with tags that begin so.
func (s *turnstile) runs(t *testing.T, n int, prefixes ...string) {
	t.Helper()
	eventually(t, longTime, func() error {
		var tags []string
		for _, p := range s.seen() {
			if p.end.IsZero() {
				tags = append(tags, p.tag)
			}
		}
		foreign := slices.ContainsFunc(tags, func(tag string) bool {
			return !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(tag, prefix) })
		})
		if len(tags) != n || foreign {
			return fmt.Errorf("%q run, want %d that begin with one of %q", tags, n, prefixes)
		}
		return nil
	})
}

// passed returns the requests that somebody passed who had come for the same later. A request
// that came before another has been admitted before it, so it uses the limit when the
// other one starts, even if it is on its way still. Absent says that x had no
// place when y was admitted.
func passed(all []passage, rank map[string]int, limit int, absent func(x string, y passage) bool) (found []string) {
	start := map[string]time.Time{}
	for _, p := range all {
		start[p.tag] = p.start
	}
	for _, y := range all {
		used := 0
		for _, p := range all {
			if !p.start.After(y.start) && (p.end.IsZero() || p.end.After(y.start)) {
				used++
			}
		}
		var before []string
		for x, r := range rank {
			at, started := start[x]
			if r < rank[y.tag] && (!started || at.After(y.start)) && !absent(x, y) {
				before = append(before, x)
			}
		}
		if used+len(before) > limit {
			slices.SortFunc(before, func(a, b string) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
			found = append(found, fmt.Sprintf("%s started beside %d others though %q come before it", y.tag, used-1, before))
		}
	}
	return found
}

// What passed finds is found.
func TestPassedFindsWhoWasPassed(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	rank := map[string]int{"a": 0, "b": 1, "c": 2}
	nobody := func(string, passage) bool { return false }
	for name, c := range map[string]struct {
		all    []passage
		absent func(string, passage) bool
		want   int
	}{
		"in order":                 {[]passage{{"a", at(0), at(1)}, {"b", at(1), at(2)}, {"c", at(2), at(3)}}, nobody, 0},
		"on its way":               {[]passage{{"b", at(0), at(3)}, {"a", at(1), at(2)}, {"c", at(4), at(5)}}, nobody, 0},
		"out of order":             {[]passage{{"b", at(0), at(3)}, {"c", at(1), at(2)}, {"a", at(4), at(5)}}, nobody, 1},
		"never served":             {[]passage{{"b", at(0), at(3)}, {"c", at(1), at(2)}}, nobody, 1},
		"had no place":             {[]passage{{"b", at(0), at(3)}, {"c", at(1), at(2)}}, func(x string, _ passage) bool { return x == "a" }, 0},
		"a second one on its way?": {[]passage{{"c", at(0), at(3)}, {"a", at(1), at(2)}, {"b", at(4), at(5)}}, nobody, 1},
	} {
		if got := passed(c.all, rank, 2, c.absent); len(got) != c.want {
			t.Errorf("%s: %q, want %d", name, got, c.want)
		}
	}
}
