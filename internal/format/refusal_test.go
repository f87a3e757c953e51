package format_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

func TestWriteRefusalSpeaksTheFormat(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	operation(t, "POST", "/v1/chat/completions").WriteRefusal(w, format.Refusal{
		Status: 429, Type: "rate_limit_error", Code: "queue_full", Message: "too many <\"waiting\">",
		RetryAfter: 2300*time.Millisecond + 1, ShouldRetry: new(bool),
	})
	if w.Code != 429 {
		t.Errorf("status %d, want 429", w.Code)
	}
	for field, want := range map[string]string{
		"Content-Type":     "application/json",
		"Content-Encoding": "",
		"Retry-After":      "3",
		"Retry-After-Ms":   "2301",
		"X-Should-Retry":   "false",
		"X-Usher-Reason":   "queue_full",
	} {
		if got := w.Header().Get(field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	var body map[string]map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"message": "too many <\"waiting\">", "type": "rate_limit_error", "param": nil, "code": "queue_full"}
	if got := body["error"]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("error %v, want %v", got, want)
	}
}

func TestWriteRefusalRoundsTheWaitUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration][2]string{
		0:                      {"", ""},
		1:                      {"1", "1"},
		20 * time.Millisecond:  {"1", "20"},
		time.Second:            {"1", "1000"},
		90*time.Second + 1:     {"91", "90001"},
		-time.Second:           {"", ""},
		math.MaxInt64:          {"9223372037", "9223372036855"},
		3 * time.Hour:          {"10800", "10800000"},
		999 * time.Microsecond: {"1", "1"},
	} {
		w := httptest.NewRecorder()
		operation(t, "POST", "/v1/responses").WriteRefusal(w, format.Refusal{Status: 503, RetryAfter: wait})
		if got := [2]string{w.Header().Get("Retry-After"), w.Header().Get("Retry-After-Ms")}; got != want {
			t.Errorf("wait %s: %v, want %v", wait, got, want)
		}
	}
}

func TestARequestThatMatchedNothingCanBeRefused(t *testing.T) {
	t.Parallel()
	var none *format.Operation
	w := httptest.NewRecorder()
	none.WriteRefusal(w, format.UnknownRoute())
	if w.Code != 404 || !strings.Contains(w.Body.String(), `"code":"unknown_route"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := none.Classify(now, 404, nil, nil).Disposition; got != policy.ClientFault {
		t.Errorf("Classify = %s", got)
	}
}

// The statuses of all refusals, which callers and their SDKs build on.
func TestRefusalsKeepTheirContract(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal format.Refusal
		status  int
		code    string
		wait    time.Duration
		retry   bool
	}{
		"queue full":                {format.Denied(policy.ReasonQueueFull, 0), 429, "queue_full", time.Second, true},
		"queue full for a while":    {format.Denied(policy.ReasonQueueFull, time.Minute), 429, "queue_full", time.Minute, true},
		"queue timeout":             {format.Denied(policy.ReasonQueueTimeout, 0), 429, "queue_timeout", time.Second, true},
		"all cooling":               {format.Denied(policy.ReasonCooldown, 3*time.Second), 429, "cooldown", 3 * time.Second, true},
		"all failing":               {format.Denied(policy.ReasonCircuitOpen, 9*time.Second), 503, "circuit_open", 9 * time.Second, true},
		"all refused":               {format.Denied(policy.ReasonAccountInvalid, time.Minute), 503, "account_invalid", time.Minute, true},
		"requests a minute used up": {format.Denied(policy.ReasonKeyRequests, 0), 429, "key_requests", time.Second, true},
		"store unavailable":         {format.Denied(policy.ReasonStoreUnavailable, 0), 503, "store_unavailable", time.Second, true},
		"plugin unavailable":        {format.Denied(policy.ReasonPluginUnavailable, 0), 503, "plugin_unavailable", time.Second, true},
		"no candidate":              {format.Denied(policy.ReasonNoCandidate, 0), 503, "no_candidate", 0, false},
		"no candidate for a while":  {format.Denied(policy.ReasonNoCandidate, time.Minute), 503, "no_candidate", time.Minute, true},
		"a policy's rule":           {format.Denied(policy.ReasonPolicy, 0), 503, "policy", 0, false},
		"a policy's rule, for now":  {format.Denied(policy.ReasonPolicy, time.Minute), 429, "policy", time.Minute, true},
		"rate limited":              {format.Failed(policy.RateLimited, 9*time.Second), 429, "rate_limited", 9 * time.Second, true},
		"quota exhausted":           {format.Failed(policy.QuotaExhausted, 0), 429, "quota_exhausted", time.Second, true},
		"our key refused":           {format.Failed(policy.AuthFailed, 0), 503, "auth_failed", 0, false},
		"overloaded":                {format.Failed(policy.Overloaded, 0), 503, "overloaded", time.Second, true},
		"unreachable":               {format.Failed(policy.ConnectFailed, 0), 502, "connect_failed", 0, true},
		"failed":                    {format.Failed(policy.UpstreamError, 0), 502, "upstream_error", 0, true},
		"too slow":                  {format.Failed(policy.Timeout, 0), 504, "timeout", 0, true},
		"too long":                  {format.Failed(policy.ContextLength, 0), 400, "context_length", 0, false},
		"stopping":                  {format.Stopping(), 503, "stopping", time.Second, true},
		"deadline":                  {format.DeadlineExceeded(), 504, "deadline_exceeded", 0, false},
		"no model":                  {(&format.BadRequest{Message: "m", Param: "model"}).Refusal(), 400, "bad_request", 0, true},
		"unreadable body":           {format.Unreadable(), 400, "bad_request", 0, true},
		"unknown model":             {format.UnknownModel("m"), 404, "model_not_found", 0, true},
		"unknown caller":            {format.UnknownCaller(), 401, "unknown_caller", 0, true},
		"unknown route":             {format.UnknownRoute(), 404, "unknown_route", 0, true},
		"wrong method":              {format.WrongMethod(), 405, "wrong_method", 0, true},
		"too large":                 {format.TooLarge(1 << 20), 413, "body_too_large", 0, true},
		"unknown encoding":          {format.UnknownEncoding(), 415, "unknown_encoding", 0, true},
	} {
		r := c.refusal
		retry := r.ShouldRetry == nil || *r.ShouldRetry
		if r.Status != c.status || r.Code != c.code || r.RetryAfter != c.wait || retry != c.retry {
			t.Errorf("%s: got %+v (retry %v), want %d %s after %s (retry %v)", name, r, retry, c.status, c.code, c.wait, c.retry)
		}
		if r.Message == "" || r.Type == "" {
			t.Errorf("%s: no message or type: %+v", name, r)
		}
	}
	if got := format.TooLarge(33554432).Message; !strings.Contains(got, "33554432") {
		t.Errorf("the limit is not named: %s", got)
	}
}

func TestEveryReasonAndEndHasARefusal(t *testing.T) {
	t.Parallel()
	statuses := []int{400, 429, 502, 503, 504}
	for _, reason := range policy.Reasons() {
		if r := format.Denied(reason, 0); !slices.Contains(statuses, r.Status) || r.Code != string(reason) || r.Message == "" {
			t.Errorf("Denied(%s) = %+v", reason, r)
		}
	}
	for _, d := range policy.Dispositions() {
		if r := format.Failed(d, 0); !slices.Contains(statuses, r.Status) || r.Code != string(d) || r.Message == "" {
			t.Errorf("Failed(%s) = %+v", d, r)
		}
	}
}

func TestStreamErrorIsOneEventOfTheFormat(t *testing.T) {
	t.Parallel()
	r := format.Failed(policy.UpstreamError, 0)
	for path, c := range map[string]struct{ want, kind, code string }{
		chatPath: {
			`data: {"error":{"message":"the provider failed","type":"server_error","param":null,"code":"upstream_error"}}`,
			"server_error", "upstream_error",
		},
		responsesPath: {
			"event: error\n" + `data: {"type":"error","code":"upstream_error","message":"the provider failed","param":null,"sequence_number":0}`,
			"error", "upstream_error",
		},
		messagesPath: {
			"event: error\n" + `data: {"type":"error","error":{"type":"api_error","message":"the provider failed"}}`,
			"api_error", "",
		},
		streamPath: {
			`data: {"error":{"code":502,"message":"the provider failed","status":"UNAVAILABLE","details":[` +
				`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UPSTREAM_ERROR","domain":"usher"}]}}`,
			"UNAVAILABLE", "502",
		},
	} {
		op := operation(t, http.MethodPost, path)
		got := op.StreamError(r)
		if string(got) != c.want+"\n\n" {
			t.Errorf("%s: got %s, want %s", path, got, c.want)
		}
		m := format.NewMeter(op, nil, true)
		_, _ = m.Write(got)
		if f := m.Err(); f == nil || f.Type != c.kind || f.Code != c.code || m.InEvent() {
			t.Errorf("%s: a meter reads it as %+v (in event %v)", path, f, m.InEvent())
		}
	}
}

func TestRefusalsSpeakTheCallersFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path    string
		refusal format.Refusal
		want    string
	}{
		{messagesPath, format.Denied(policy.ReasonQueueFull, 0), `{"type":"error","error":{"type":"rate_limit_error","message":"too many requests are waiting"}}`},
		{messagesPath, format.UnknownCaller(), `"type":"authentication_error"`},
		{messagesPath, format.UnknownModel("m"), `"type":"not_found_error"`},
		{messagesPath, format.TooLarge(5), `"type":"request_too_large"`},
		{messagesPath, format.Unreadable(), `"type":"invalid_request_error"`},
		{messagesPath, format.UnknownEncoding(), `"type":"invalid_request_error"`},
		{messagesPath, format.DeadlineExceeded(), `"type":"timeout_error"`},
		{messagesPath, format.Failed(policy.Overloaded, 0), `"type":"overloaded_error"`},
		{messagesPath, format.Failed(policy.AuthFailed, 0), `"type":"api_error"`},
		{
			generatePath, format.Denied(policy.ReasonQueueFull, 1500*time.Millisecond),
			`{"error":{"code":429,"message":"too many requests are waiting","status":"RESOURCE_EXHAUSTED","details":[` +
				`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"QUEUE_FULL","domain":"usher"},` +
				`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`,
		},
		{generatePath, format.UnknownCaller(), `"status":"UNAUTHENTICATED"`},
		{generatePath, format.UnknownModel("m"), `"status":"NOT_FOUND"`},
		{generatePath, format.TooLarge(5), `"code":413,`},
		{generatePath, format.Unreadable(), `"status":"INVALID_ARGUMENT"`},
		{generatePath, format.DeadlineExceeded(), `"status":"DEADLINE_EXCEEDED"`},
		{generatePath, format.Failed(policy.Overloaded, 0), `"status":"UNAVAILABLE"`},
	} {
		w := httptest.NewRecorder()
		operation(t, "POST", c.path).WriteRefusal(w, c.refusal)
		if w.Code != c.refusal.Status || !strings.Contains(w.Body.String(), c.want) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: got %d %s, want %s", c.path, c.refusal.Code, w.Code, w.Body, c.want)
		}
		if got := w.Header().Get(format.HeaderReason); got != c.refusal.Code {
			t.Errorf("%s %s: reason %q", c.path, c.refusal.Code, got)
		}
	}
}

func TestEveryRefusalHasATypeInEveryFormat(t *testing.T) {
	t.Parallel()
	refusals := []format.Refusal{
		format.WrongMethod(), format.UnknownRoute(), format.UnknownCaller(), format.UnknownModel("m"), format.TooLarge(1),
		format.UnknownEncoding(), format.Unreadable(), format.NotHeld(), format.DeadlineExceeded(), format.Stopping(),
	}
	for _, reason := range policy.Reasons() {
		refusals = append(refusals, format.Denied(reason, 0))
	}
	for _, d := range policy.Dispositions() {
		refusals = append(refusals, format.Failed(d, 0))
	}
	for _, path := range []string{chatPath, responsesPath, messagesPath, generatePath} {
		for _, r := range refusals {
			w := httptest.NewRecorder()
			operation(t, "POST", path).WriteRefusal(w, r)
			if text := w.Body.String(); strings.Contains(text, `"type":""`) || strings.Contains(text, `"status":""`) {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
}
