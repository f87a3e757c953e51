package commit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

const (
	role    = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
	text    = "data: {\"choices\":[{\"delta\":{\"content\":\"\u5317\"}}]}\n\n"
	fault   = "data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n"
	mistake = "data: {\"error\":{\"type\":\"invalid_request_error\"}}\n\n"
	end     = "data: [DONE]\n\n"
	ping    = ": ping\n\n"
)

var gate = commit.Gate{MaxBytes: commit.DefaultMaxBytes, MaxWait: commit.DefaultMaxWait}

func operation(t testing.TB, path string) *format.Operation {
	t.Helper()
	op, ok := format.Find(httptest.NewRequest(http.MethodPost, path, nil))
	if !ok {
		t.Fatalf("no operation %s", path)
	}
	return op
}

func chat(t testing.TB) *format.Operation {
	t.Helper()
	return operation(t, "/v1/chat/completions")
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A source is a body that comes in pieces and ends with err. It notes whether
// it was closed.
type source struct {
	pieces [][]byte
	err    error
	early  bool // err comes with the last piece
	closed bool
}

func (s *source) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		return 0, s.err
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	if s.early && len(s.pieces) == 0 {
		return n, s.err
	}
	return n, nil
}

func (s *source) Close() error {
	s.closed = true
	return nil
}

// answer returns an answer of events, or of JSON, with the body.
func answer(media string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media}}, Body: body}
}

const (
	events = "text/event-stream"
	json   = "application/json"
)

var errCut = errors.New("connection reset")

func TestHoldDecidesByTheBeginning(t *testing.T) {
	t.Parallel()
	big := strings.Repeat(ping, commit.DefaultMaxBytes/len(ping)+1)
	for name, c := range map[string]struct {
		media, text string
		err         error
		want        policy.Disposition
		cause       commit.Cause
	}{
		"content":                       {events, role + text + end, io.EOF, policy.OK, commit.Content},
		"content and a cut":             {events, role + text, errCut, policy.OK, commit.Content},
		"content, then an error":        {events, text + fault, io.EOF, policy.OK, commit.Content},
		"no [DONE]":                     {events, fixture(t, "no_done.sse"), io.EOF, policy.OK, commit.Content},
		"content without a last line":   {events, strings.TrimSpace(text), io.EOF, policy.OK, commit.Content},
		"an error":                      {events, fault, io.EOF, policy.RateLimited, commit.ErrorEvent},
		"an error after preamble":       {events, ping + role + fault + text, io.EOF, policy.RateLimited, commit.ErrorEvent},
		"an error and a cut":            {events, fault, errCut, policy.RateLimited, commit.ErrorEvent},
		"an error without a last line":  {events, strings.TrimSpace(fault), io.EOF, policy.RateLimited, commit.ErrorEvent},
		"the caller's error":            {events, mistake, io.EOF, policy.ClientFault, commit.ErrorEvent},
		"overloaded":                    {events, fixture(t, "anthropic_first_event_error.sse"), io.EOF, policy.Overloaded, commit.ErrorEvent},
		"nothing":                       {events, "", io.EOF, policy.UpstreamError, commit.NoContent},
		"two comments":                  {events, ping + ping, io.EOF, policy.UpstreamError, commit.NoContent},
		"preamble":                      {events, role, io.EOF, policy.UpstreamError, commit.NoContent},
		"the end alone":                 {events, ping + end + text, io.EOF, policy.UpstreamError, commit.NoContent},
		"a page":                        {"text/html", "<p>Welcome", io.EOF, policy.UpstreamError, commit.NoContent},
		"a cut":                         {events, role, errCut, policy.UpstreamError, commit.ReadError},
		"a cut inside content":          {events, text[:20], errCut, policy.UpstreamError, commit.ReadError},
		"a timeout":                     {events, role, os.ErrDeadlineExceeded, policy.Timeout, commit.ReadError},
		"a cancel that is not ours":     {events, role, context.Canceled, policy.UpstreamError, commit.ReadError},
		"much preamble":                 {events, big + text, io.EOF, policy.OK, commit.MaxBytes},
		"much preamble, then a cut":     {events, big, errCut, policy.OK, commit.MaxBytes},
		"JSON":                          {json, ` {"choices":[]} `, io.EOF, policy.OK, commit.Content},
		"JSON that is long":             {json, `{"x":"` + strings.Repeat("x", 100_000) + `"}`, io.EOF, policy.OK, commit.MaxBytes},
		"JSON with an error":            {json, `{"id":1,"error":{"code":"rate_limit_exceeded"}}`, io.EOF, policy.RateLimited, commit.ErrorEvent},
		"JSON that was cut":             {json, `{"choices":[`, errCut, policy.UpstreamError, commit.ReadError},
		"JSON that ended early":         {json, `{"choices":[`, io.EOF, policy.UpstreamError, commit.NoContent},
		"JSON that is a word":           {json, `"x"`, io.EOF, policy.OK, commit.Content},
		"blank lines in place of JSON":  {json, "\n\n\n", io.EOF, policy.UpstreamError, commit.NoContent},
		"JSON of nothing":               {json, "", io.EOF, policy.UpstreamError, commit.NoContent},
		"blank lines, then JSON":        {json, "\n\n\n{}", io.EOF, policy.OK, commit.Content},
		"JSON error after much of JSON": {json, `{"x":"` + strings.Repeat("x", 100_000) + `","error":{"code":"x"}}`, io.EOF, policy.OK, commit.MaxBytes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &source{pieces: [][]byte{[]byte(c.text)}, err: c.err}
			resp := answer(c.media, s)
			o := gate.Hold(t.Context(), chat(t), resp, true)
			if o.Disposition != c.want || o.Cause != c.cause {
				t.Errorf("got %s by %s, want %s by %s", o.Disposition, o.Cause, c.want, c.cause)
			}
			if failed := o.Cause == commit.ReadError; failed != (o.Err != nil) || failed && o.Err != c.err {
				t.Errorf("error %v", o.Err)
			}
			got, err := io.ReadAll(resp.Body)
			if string(got) != c.text {
				t.Errorf("read %q, want %q", got, c.text)
			}
			if err == nil {
				err = io.EOF
			}
			if err != c.err {
				t.Errorf("the body ends with %v, want %v", err, c.err)
			}
			if s.closed {
				t.Error("the gate closed what is not read yet")
			}
			if err := resp.Body.Close(); err != nil || !s.closed {
				t.Errorf("Close: %v, closed %v", err, s.closed)
			}
		})
	}
}

func TestTheMeterWatchesTheWholeAnswer(t *testing.T) {
	t.Parallel()
	resp := answer(events, &source{pieces: [][]byte{
		[]byte(role), []byte(text), []byte("data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}"),
	}, err: io.EOF})
	o := gate.Hold(t.Context(), chat(t), resp, true)
	if !o.Meter.FirstContent() || o.Meter.Usage() != nil {
		t.Errorf("content %v, usage %v before the rest is read", o.Meter.FirstContent(), o.Meter.Usage())
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if u := o.Meter.Usage(); u == nil || u.Total() != 5 {
		t.Errorf("usage %v, want 5 tokens", u)
	}
}

// What a last event tells counts, even if the connection was cut inside it.
func TestACutClosesTheMeter(t *testing.T) {
	t.Parallel()
	const usage = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}"
	for name, c := range map[string]struct{ held, rest string }{
		"in what is held": {text + usage, ""},
		"in the rest":     {text, usage},
	} {
		resp := answer(events, &source{pieces: [][]byte{[]byte(c.held), []byte(c.rest)}, err: errCut})
		o := gate.Hold(t.Context(), chat(t), resp, true)
		if _, err := io.Copy(io.Discard, resp.Body); err != errCut {
			t.Errorf("%s: the body ends with %v", name, err)
		}
		if u := o.Meter.Usage(); u == nil || u.Total() != 5 {
			t.Errorf("%s: usage %v, want 5 tokens", name, u)
		}
	}
}

func TestAGateOfZeroHoldsNothing(t *testing.T) {
	t.Parallel()
	s := &source{pieces: [][]byte{[]byte(fault)}, err: io.EOF}
	resp := answer(events, s)
	o := commit.Gate{}.Hold(t.Context(), chat(t), resp, true)
	if o.Disposition != policy.OK || o.Cause != commit.MaxBytes || len(s.pieces) != 1 {
		t.Errorf("got %+v, %d pieces left", o, len(s.pieces))
	}
	if got, err := io.ReadAll(resp.Body); string(got) != fault || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// What comes within the longest wait is held; after it, all that was held
// passes, and each further piece when it comes.
func TestHoldWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		go func() {
			for range 3 {
				time.Sleep(4 * time.Second)
				_, _ = io.WriteString(w, ping)
			}
			_, _ = io.WriteString(w, text)
			_ = w.Close()
		}()
		began := time.Now()
		resp := answer(events, r)
		o := gate.Hold(t.Context(), chat(t), resp, true)
		if o.Disposition != policy.OK || o.Cause != commit.MaxWait || time.Since(began) != commit.DefaultMaxWait {
			t.Errorf("got %s by %s after %s", o.Disposition, o.Cause, time.Since(began))
		}
		for _, want := range []struct {
			text string
			at   time.Duration
		}{{ping + ping, 10 * time.Second}, {ping, 12 * time.Second}, {text, 12 * time.Second}} {
			p := make([]byte, 1000)
			n, err := resp.Body.Read(p)
			if at := time.Since(began); string(p[:n]) != want.text || err != nil || at != want.at {
				t.Errorf("at %s read %q, %v, want %q at %s", at, p[:n], err, want.text, want.at)
			}
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end read %d, %v", n, err)
		}
		if !o.Meter.FirstContent() {
			t.Error("the meter has not seen the content")
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The bubble of synctest fails if a goroutine is left.
func TestCloseEndsWhatTheGateBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := io.Pipe()
		resp := answer(events, r)
		if o := gate.Hold(t.Context(), chat(t), resp, true); o.Cause != commit.MaxWait {
			t.Fatalf("got %+v", o)
		}
		read := make(chan error)
		go func() {
			_, err := resp.Body.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a read that waits ends with %v", err)
		}
	})
}

func TestHoldHonoursTheContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		want policy.Disposition
		err  error
	}{
		"the caller leaves": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(errCut) })
				return ctx, func() { cancel(nil) }
			},
			policy.ClientGone, context.Canceled,
		},
		"the deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
			policy.Timeout, context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := c.end(t.Context())
				defer cancel()
				r, w := io.Pipe()
				began, resp := time.Now(), answer(events, r)
				o := gate.Hold(ctx, chat(t), resp, true)
				if o.Disposition != c.want || o.Cause != commit.ContextDone || o.Err != c.err || time.Since(began) != time.Second {
					t.Errorf("got %+v after %s, want %s", o, time.Since(began), c.want)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if _, err := w.Write([]byte(text)); err != io.ErrClosedPipe {
					t.Errorf("the provider can still write: %v", err)
				}
			})
		})
	}
}

// An error of the connection that the end of the context brought about is not
// the provider's.
func TestACutByTheContextIsNotTheProviders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		resp := answer(events, &source{err: errCut})
		if o := gate.Hold(ctx, chat(t), resp, true); o.Disposition != policy.ClientGone {
			t.Fatalf("got %+v", o)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
