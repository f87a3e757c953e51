package commit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/internal/format"
)

// A provider that answers 200, and then tells that it is overloaded.
func ExampleGate() {
	op, _ := format.Find(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))
	resp := &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"text/event-stream"}},
		Body:       io.NopCloser(strings.NewReader(": connected\n\ndata: {\"error\":{\"code\":\"server_is_overloaded\"}}\n\n")),
	}
	gate := commit.Gate{MaxBytes: commit.DefaultMaxBytes, MaxWait: commit.DefaultMaxWait}
	opening := gate.Hold(context.Background(), op, resp, true)
	defer func() { _ = resp.Body.Close() }()
	fmt.Println(opening.Disposition, opening.Cause, opening.Disposition.Failover())
	// Output:
	// overloaded error_event true
}
