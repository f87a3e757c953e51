package caddymodule_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The spans of a streamed request end when its answer does, whatever ends it.
func TestSpansEndWithTheStream_B132(t *testing.T) {
	for name, c := range map[string]struct {
		rest   http.HandlerFunc
		leaves bool
		want   string
	}{
		"its end":               {streams(streamAnswer), false, "ok"},
		"its caller leaves":     {streams(streamAnswer), true, "client_gone"},
		"its provider breaks":   {drops, false, "upstream_error"},
		"an error in its midst": {streams("data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n"), false, "rate_limited"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				streams(content)(w, r)
				g.then(c.rest)(w, r)
			})
			st := serve(t, setup{usher: up.provider() + model(up)})
			id := newTraceID()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := st.open(http.MethodPost, chatPath, streamBody, inTrace(id), within(ctx))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			after(t, g.arrived, "the request")
			begun := time.Now()
			if c.leaves {
				leave()
				after(t, g.left, "the end at the provider")
			}
			g.open()
			_, _ = io.Copy(io.Discard, resp.Body) // however it ends
			tr := spans.await(t, id, serverSpan+" 1", "usher.select 1", "usher.admit 1", "chat m 1", "keys select 1", "fifo admit 1", "fifo release 1")
			for _, name := range []string{serverSpan, "chat m"} {
				s := tr.named(t, name, 0)
				if ended := time.Unix(0, int64(s.GetEndTimeUnixNano())); ended.Before(begun) {
					t.Errorf("%s ended %s before the answer did", s, begun.Sub(ended))
				}
				s.expectAttrs(t, map[string]string{"usher.disposition": c.want})
			}
			if tr.named(t, "chat m", 0).events()[0] != "first_content" {
				t.Errorf("events %q", tr.named(t, "chat m", 0).events())
			}
			tr.expectParents(t, tr.named(t, serverSpan, 0), pluginParents)
		})
	}
}

// Whatever callers make up, names of spans and labels of metrics stay the same
// ones, and nothing of it is kept.
func TestWhatCallersMakeUpIsNotKept_B139(t *testing.T) {
	provider := httptest.NewServer(chats()) // which remembers nothing
	defer provider.Close()
	st := serve(t, setup{global: "metrics", usher: "provider forgetful " + provider.URL + " {\n" + key(1) + "}\nmodel m forgetful\n"})
	id := newTraceID()
	send := func(from, to int, trace option) {
		for i := from; i < to; i++ {
			path, body := chatPath, fmt.Sprintf(`{"model":"made-up-%d","user":"user-%d"}`, i, i)
			switch i % 3 {
			case 1:
				path = fmt.Sprintf("/v1/models/made-up-%d:generateContent", i)
			case 2:
				body = fmt.Sprintf(`{"model":"m","user":"user-%d"}`, i)
			}
			st.do(http.MethodPost, path, body, trace, header("X-Request-Id", fmt.Sprint("id-", i)), header("User-Agent", fmt.Sprint("agent ", i)))
		}
	}
	const some, many = 1200, 2400 // more than the decisions that are kept
	send(0, some, inTrace(id))
	st.await(0, 0)
	st.series() // which is a request to the admin API, too
	before, used := st.series(), heap()
	send(some, many, header("Traceparent", "00-"+newTraceID()+"-"+callerSpan+"-00")) // so that the collector, which is here, too, remembers nothing
	st.await(0, 0)
	if got := st.series(); got != before {
		t.Errorf("%d series of metrics after %d requests, %d after %d", before, some, got, many)
	}
	if grown := int64(heap()) - int64(used); grown > 8<<20 {
		t.Errorf("the heap has grown by %d KiB", grown>>10)
	}
	names := make(map[string]bool)
	eventually(t, func() error { // as far as they were not dropped
		tr := spans.trace(id)
		for _, s := range tr {
			names[s.GetName()] = true
		}
		if len(tr) < some/2 {
			return fmt.Errorf("%d spans", len(tr))
		}
		return nil
	})
	if len(names) > 15 {
		t.Errorf("%d names of spans: %v", len(names), names)
	}
}

// series counts the lines of the metrics of Caddy.
func (st *site) series() (n int) {
	st.t.Helper()
	for line := range strings.Lines(string(st.adminGet("/metrics", http.StatusOK))) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go_") {
			n++
		}
	}
	return n
}
