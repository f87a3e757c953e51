package caddymodule_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

const fileAnswer = `{"id":"file-1","object":"file","error":{"message":"not ours"}}`

// What no model is named for goes to the key that holds it, and nowhere else.
func TestFilesGoToTheirHolder(t *testing.T) {
	other, up := newUpstream(t, chats()), newUpstream(t, answers(http.StatusOK, fileAnswer))
	st := serve(t, setup{usher: other.provider() + up.providerOf(key(1)+key(2)) + inOrder + model(other, up) + "files " + up.name + " k2\n" + callers})
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/files", transcription("x", strings.Repeat("y", 2<<20))},
		{"GET", "/v1/files?limit=2", ""},
		{"GET", "/v1/files/file-1", ""},
		{"GET", "/v1/files/file-1/content", ""},
		{"DELETE", "/v1/files/file%2D1", ""},
		{"POST", "/v1/batches", `{"input_file_id":"file-1"}`},
		{"POST", "/v1/batches/batch_1/cancel", ""},
		{"POST", "/v1/uploads/upload_1/parts", "--x--"},
		{"GET", "/v1/vector_stores/vs_1/files", ""},
		{"POST", "/v1/fine_tuning/jobs", `{"model":"m"}`},
		{"GET", "/v1/conversations/conv_1/items", ""},
	} {
		n := len(up.seen())
		r := st.do(c.method, c.path, c.body, bearer(secret3), isForm)
		if r.StatusCode != http.StatusOK || r.body != fileAnswer || r.Header.Get("X-Usher-Candidate") != up.name+"/k2" {
			t.Errorf("%s %s: %s %v\n%s", c.method, c.path, r.Status, r.Header, r.body)
			continue
		}
		h := up.expect(t, n+1)[n]
		if h.Method != c.method || h.RequestURI != c.path || h.body != c.body || h.Header.Get("Authorization") != "Bearer "+secret2 {
			t.Errorf("%s %s: the provider got %s %s with %v", c.method, c.path, h.Method, h.RequestURI, h.Header)
		}
		if len(h.TransferEncoding) > 0 || h.ContentLength != int64(len(c.body)) {
			t.Errorf("%s %s: length %d and encoding %v", c.method, c.path, h.ContentLength, h.TransferEncoding)
		}
		d := st.decision(r.id())
		if d.Caller != "low" || d.Disposition != policy.OK || len(d.Attempts) != 1 || d.Attempts[0].Usage.InputTokens != 0 {
			t.Errorf("%s %s: %+v", c.method, c.path, d)
		}
	}
	for _, path := range []string{"/v1/files/../models", "/v1/files/%2e%2e/x", "/v1/files/a%2F..%2Fb", "/v1/files/", "/v1/files//x"} {
		st.do("GET", path, "", bearer(secret3)).expectRefusal(t, http.StatusNotFound, "unknown_route")
	}
	st.do("GET", "/v1/files", "").expectRefusal(t, http.StatusUnauthorized, "unknown_caller")
	other.expect(t, 0)
}

// Files of all callers lie together, so nobody gets at them unless the operator
// says so.
func TestFilesAreNotServedUnlessSomebodyHoldsThem(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{site: "handle_path /v1/batches {\nrespond mine 200\n}\n", usher: up.provider() + model(up)})
	st.do("GET", "/v1/files", "").expectRefusal(t, http.StatusNotFound, "unknown_route")
	st.do("POST", "/v1/files", "x").expectRefusal(t, http.StatusNotFound, "unknown_route")
	up.expect(t, 0)
}

// Nothing else is tried if the holder cannot serve.
func TestHolderThatFailsIsNotReplaced_B71(t *testing.T) {
	up := newUpstream(t, breaks(), limited("Retry-After", "30"))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up) + "files " + up.name + "\n"})
	r := st.do("GET", "/v1/files/f", "")
	if r.StatusCode != http.StatusInternalServerError {
		t.Errorf("%s %s", r.Status, r.body)
	}
	st.expectAttempts(r, "k1 500 upstream_error")
	r = st.do("GET", "/v1/files/f", "")
	st.expectAttempts(r, "k1 429 rate_limited")
	r.expectRetryAfter(t, 30)
	up.expect(t, 2)
}

// A limit of files is none of prompts.
func TestLimitOfFilesIsNoneOfPrompts(t *testing.T) {
	up := newUpstream(t, limited("Retry-After", "30", "Ratelimit-Limit", "5", "Ratelimit-Remaining", "0", "Ratelimit-Reset", "30"), chats())
	st := serve(t, setup{usher: up.provider() + model(up) + "files " + up.name + "\n"})
	st.do("GET", "/v1/files/f", "").expectRetryAfter(t, 30)
	st.do("GET", "/v1/batches/b", "").expectRefusal(t, http.StatusTooManyRequests, "cooldown")
	st.ask(chatBody, http.StatusOK)
	up.expect(t, 2)
}

// The limits of callers and keys hold for files, too.
func TestFilesTakeTheirTurn(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()), answers(http.StatusOK, fileAnswer))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up) + "files " + up.name + "\n"})
	chat := st.begin(chatBody)
	after(t, g.arrived, "the chat")
	done := make(chan *reply, 1)
	go func() { done <- st.do("GET", "/v1/files/f", "") }()
	st.await(1, 1)
	g.open()
	after(t, chat, "the chat")
	if r := after(t, done, "the file"); r.StatusCode != http.StatusOK {
		t.Errorf("%s %s", r.Status, r.body)
	}
}

func answerOf(id string) string {
	return fmt.Sprintf(`{"id":%q,"object":"response","status":"completed","output":[{"type":"message"}],"usage":{"input_tokens":3,"output_tokens":2}}`, id)
}

var responseID = 0

// newResponseID returns one that no test has used, since they are remembered.
func newResponseID() string {
	responseID++
	return fmt.Sprintf("resp_%04d", responseID)
}

const responsesPath = "/v1/responses"

// Who gave an answer is asked about it, and for what goes on from it.
func TestFollowUpsGoToWhoAnswered_B71(t *testing.T) {
	whole, streamed := newResponseID(), newResponseID()
	up := newUpstream(t, limited("Retry-After-Ms", "1"), answers(http.StatusOK, answerOf(whole)), streams(
		`data: {"type":"response.created","response":{"id":"`+streamed+`"}}`+"\n\n",
		`data: {"type":"response.output_text.delta","delta":"Hi"}`+"\n\n",
		`data: {"type":"response.completed","response":{"id":"`+streamed+`","usage":{"input_tokens":3,"output_tokens":2}}}`+"\n\n",
	), answers(http.StatusOK, answerOf("later")))
	order := func(first, second string) setup {
		return setup{usher: up.providerOf(first+second) + inOrder + model(up)}
	}
	st := serve(t, order(key(1), key(2)))
	st.expectAttempts(st.do("POST", responsesPath, `{"model":"m","input":"Hi"}`), "k1 429 rate_limited", "k2 200 ok")
	if err := st.load(order(key(2), key(1))); err != nil { // it is remembered over a reload
		t.Fatal(err)
	}
	st.expectAttempts(st.do("POST", responsesPath, `{"model":"m","stream":true}`), "k2 200 ok")
	if err := st.load(order(key(1), key(2))); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{whole, streamed} {
		for _, c := range []struct{ method, path, body string }{
			{"GET", responsesPath + "/" + id + "?include=x", ""},
			{"GET", responsesPath + "/" + id + "/input_items", ""},
			{"POST", responsesPath + "/" + id + "/cancel", ""},
			{"DELETE", "/openai/v1/responses/" + id, ""},
			{"POST", responsesPath, `{"model":"m","previous_response_id":"` + id + `","input":"more"}`},
			{"POST", responsesPath + "/input_tokens", `{"model":"m","previous_response_id":"` + id + `"}`},
		} {
			r := st.do(c.method, c.path, c.body)
			st.expectAttempts(r, "k2 200 ok")
		}
	}
	st.expectAttempts(st.do("POST", responsesPath, `{"model":"m"}`), "k1 200 ok")
}

// Where nobody remembers who answered, those who might are asked one after the
// other; that says nothing of their health.
func TestFollowUpsAreLookedFor(t *testing.T) {
	missing := answers(http.StatusNotFound, failure("invalid_request_error", ""))
	notFound := answers(http.StatusBadRequest, failure("invalid_request_error", "previous_response_not_found"))
	for name, c := range map[string]struct {
		method, path, body string
		answers            []http.HandlerFunc
		status             int
		want               []string
	}{
		"get": {
			"GET", responsesPath + "/" + newResponseID(), "",
			[]http.HandlerFunc{missing, answers(http.StatusOK, answerOf("r"))},
			200,
			[]string{"k1 404 client_fault", "k2 200 ok"},
		},
		"go on": {
			"POST", responsesPath, `{"model":"m","previous_response_id":"` + newResponseID() + `"}`,
			[]http.HandlerFunc{notFound, answers(http.StatusOK, answerOf("r"))},
			200,
			[]string{"k1 400 client_fault", "k2 200 ok"},
		},
		"nowhere": {
			"DELETE", responsesPath + "/" + newResponseID(), "",
			[]http.HandlerFunc{missing},
			404,
			[]string{"k1 404 client_fault", "k2 404 client_fault", "k3 404 client_fault"},
		},
		"another fault": {
			"POST", responsesPath, `{"model":"m","previous_response_id":"` + newResponseID() + `"}`,
			[]http.HandlerFunc{answers(http.StatusBadRequest, failure("invalid_request_error", "invalid_value"))},
			400,
			[]string{"k1 400 client_fault"},
		},
		"no reference": {
			"POST", responsesPath, `{"model":"m"}`,
			[]http.HandlerFunc{missing},
			404,
			[]string{"k1 404 client_fault"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, c.answers...)
			st := serve(t, setup{usher: up.providerOf(key(1)+key(2)+key(3)) + inOrder + model(up)})
			r := st.do(c.method, c.path, c.body)
			if r.StatusCode != c.status {
				t.Errorf("%s %s", r.Status, r.body)
			}
			st.expectAttempts(r, c.want...)
		})
	}
}

// A prompt that names a file goes to the account that holds it.
func TestPromptsWithFilesGoToTheirHolder(t *testing.T) {
	up, other := newUpstream(t, chats()), newUpstream(t, chats())
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + other.provider() + inOrder + "model m {\nserve " + up.name + "\nserve " + other.name +
		"\n}\nmodel n " + other.name + "\nfiles " + up.name + " k2\n"})
	for body, want := range map[string]string{
		`{"model":"m","messages":[{"content":[{"type":"file","file":{"file_id" : "file-1"}}]}]}`: up.name + "/k2/m",
		`{"model":"m","messages":[{"content":"\"file_id\":\"x\" file_id"}]}`:                     up.name + "/k1/m",
		`{"model":"m","tools":[{"parameters":{"properties":{"file_id":{"type":"string"}}}}]}`:    up.name + "/k1/m",
	} {
		if r := st.ask(body, http.StatusOK); r.Header.Get("X-Usher-Candidate") != want {
			t.Errorf("%s went to %s, want %s", body, r.Header.Get("X-Usher-Candidate"), want)
		}
	}
	r := st.do("POST", responsesPath, `{"model":"m","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}],"conversation":"conv_1"}`)
	if got := r.Header.Get("X-Usher-Candidate"); got != up.name+"/k2/m" {
		t.Errorf("a search in files went to %s", got)
	}
	st.ask(`{"model":"n","x":{"file_id":"file-1"}}`, http.StatusServiceUnavailable).
		expectRefusal(t, http.StatusServiceUnavailable, string(policy.ReasonNoCandidate))
	other.expect(t, 0)
}

// Keys of one account know the same.
func TestAnyKeyOfTheAccountWillDo(t *testing.T) {
	id := newResponseID()
	up := newUpstream(t, answers(http.StatusOK, answerOf(id)), limited("Retry-After", "30"), answers(http.StatusOK, answerOf(id)))
	st := serve(t, setup{usher: up.providerOf(key(1, "account a")+key(2)+key(3, "account a")) + inOrder + model(up)})
	st.expectAttempts(st.do("POST", responsesPath, `{"model":"m"}`), "k1 200 ok")
	more := `{"model":"m","previous_response_id":"` + id + `"}`
	r := st.do("POST", responsesPath, more)
	st.expectAttempts(r, "k1 429 rate_limited", "k3 200 ok")
	up.expect(t, 3)
}

// A job may run although its answer is lost.
func TestJobsAreNotStartedTwice_B59(t *testing.T) {
	const body = `{"model":"m","prompt":"p"}`
	up := newUpstream(t, breaks(), drops, limited(), answers(http.StatusOK, `{"id":"video_1","status":"queued"}`))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	r := st.do("POST", "/v1/videos", body)
	st.expectAttempts(r, "k1 500 upstream_error")
	if a := st.decision(r.id()).Attempts[0]; a.NoRetry != "job" {
		t.Errorf("%+v", a)
	}
	r = st.do("POST", "/v1/videos", body) // of which the answer is lost
	st.expectAttempts(r, "k1 0 upstream_error")
	r = st.do("POST", "/v1/videos", body) // what was refused does not run
	st.expectAttempts(r, "k1 429 rate_limited", "k2 200 ok")
	for range 5 {
		r = st.do("GET", "/v1/videos/video_1", "")
		st.expectAttempts(r, "k2 200 ok")
	}
}

func TestOriginsForgetTheOldest(t *testing.T) {
	var o caddymodule.Origins
	o.Learn("first", "p/k1")
	for i := range caddymodule.KeptOrigins {
		o.Learn(fmt.Sprint(i), "p/k2")
	}
	if got := o.Of("first"); got != "p/k1" {
		t.Errorf("%q, want p/k1", got)
	}
	for i := range caddymodule.KeptOrigins {
		o.Learn(fmt.Sprint("more", i), "p/k3")
	}
	if got := o.Of("first"); got != "" {
		t.Errorf("%q is remembered", got)
	}
	if got := o.Of(fmt.Sprint("more", caddymodule.KeptOrigins-1)); got != "p/k3" {
		t.Errorf("%q, want p/k3", got)
	}
}

// Batches of Anthropic's are at its own paths.
func TestAnthropicBatchesGoToTheirHolder(t *testing.T) {
	openai, anthropic := newUpstream(t, chats()), newUpstream(t, answers(http.StatusOK, `{"id":"msgbatch_1"}`))
	st := serve(t, setup{usher: openai.provider() + anthropic.provider("format anthropic") + model(openai, anthropic) +
		"files " + openai.name + "\nfiles " + anthropic.name + "\n"})
	for path, fields := range map[string][]option{
		"/v1/messages/batches":                    nil,
		"/v1/messages/batches/msgbatch_1/results": nil,
		"/v1/files/f":                             {header("Anthropic-Version", "2023-06-01"), header("Anthropic-Beta", "files")},
	} {
		n := len(anthropic.seen())
		if r := st.do("GET", path, "", fields...); r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, r.Status, r.body)
		}
		if h := anthropic.expect(t, n+1)[n]; h.Header.Get("X-Api-Key") != secret1 || h.URL.Path != path {
			t.Errorf("%s: %s with %v", path, h.URL, h.Header)
		}
	}
	openai.expect(t, 0)
}

// Downloads pass as they come, also without a byte.
func TestDownloadsAreNotJudged(t *testing.T) {
	up := newUpstream(t, answers(http.StatusOK, "", "Content-Type", "application/jsonl"), answers(http.StatusNoContent, ""))
	st := serve(t, setup{usher: up.provider() + model(up) + "files " + up.name + "\n"})
	for _, want := range []int{http.StatusOK, http.StatusNoContent} {
		r, err := st.send("GET", "/v1/files/f/content", "", within(context.Background()))
		if err != nil || r.StatusCode != want || r.body != "" {
			t.Errorf("%v, %v", r, err)
		}
	}
}
