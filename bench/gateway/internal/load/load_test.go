package load_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/bench/gateway/internal/load"
)

// ask loads a handler for a moment.
func ask(t *testing.T, stream bool, h http.HandlerFunc) (load.Result, error) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	began := false
	target := load.Target{Addr: server.Listener.Addr().String(), Path: "/p", Model: "m", Stream: stream, Bytes: 100}
	r, err := load.Closed(target, 2, 0, 100*time.Millisecond, func() { began = true })
	if !began {
		t.Error("nobody was told of the beginning")
	}
	return r, err
}

func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"plain": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			r, err := ask(t, stream, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path != "/p" || stream != strings.Contains(string(body), `"stream":true`) {
					http.Error(w, "what is this?", http.StatusBadRequest)
					return
				}
				if stream {
					_, _ = io.WriteString(w, "data: {}\n\n")
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			})
			if err != nil || r.Requests == 0 || r.P50 <= 0 || r.P50 > r.P99 || r.Seconds <= 0 {
				t.Errorf("result %+v, %v", r, err)
			}
		})
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "data: {}\n\n")
			_ = http.NewResponseController(w).Flush()
		},
		"broken": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := ask(t, true, h); err == nil {
				t.Errorf("result %+v, want an error", r)
			}
		})
	}
}
