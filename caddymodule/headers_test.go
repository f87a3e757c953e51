package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestCredentialsOfACallerStayHere_B83(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + up.with("free", "key k1 none") + inOrder + model(up) + "model f free\n" + callers})
	secrets := []string{secret3, "other-secret", "cookie-secret"}
	for name, options := range map[string][]option{
		"bearer":         {bearer(secret3)},
		"lower case":     {header("authorization", "bearer  "+secret3)},
		"x-api-key":      {header("X-Api-Key", secret3)},
		"api-key":        {header("api-key", secret3)},
		"x-goog-api-key": {header("X-GOOG-API-KEY", secret3)},
		"basic beside":   {header("Authorization", "Basic other-secret"), header("X-Api-Key", secret3)},
		"all at once": {
			bearer(secret3), header("Authorization", "Bearer other-secret"), header("X-Api-Key", "other-secret"), header("Api-Key", "other-secret"),
			header("X-Goog-Api-Key", "other-secret"), header("Proxy-Authorization", "other-secret"), header("Cookie", "s=cookie-secret"),
		},
		"query":                 {func(r *http.Request) { r.URL.RawQuery = "a=1&key=" + secret3 + "&b=2" }},
		"query spelt otherwise": {bearer(secret3), func(r *http.Request) { r.URL.RawQuery = "a=1&%6beY=" + secret3 + "&b=2&KEY=other-secret" }},
	} {
		for m, want := range map[string]string{"m": "Bearer " + secret1, "f": ""} {
			t.Run(name+" for "+m, func(t *testing.T) {
				n := len(up.seen())
				st.ask(strings.Replace(chatBody, `"m"`, `"`+m+`"`, 1), http.StatusOK, options...)
				h := up.expect(t, n+1)[n]
				if got := h.Header.Get("Authorization"); got != want {
					t.Errorf("Authorization %q, want %q", got, want)
				}
				sent := fmt.Sprint(h.Header, h.URL)
				for _, s := range secrets {
					if strings.Contains(sent, s) {
						t.Errorf("the provider got %s", sent)
					}
				}
				if strings.Contains(name, "query") && h.URL.RawQuery != "a=1&b=2" {
					t.Errorf("query %q, want the rest as it was", h.URL.RawQuery)
				}
			})
		}
	}
}

// with is the block of a provider of another name at the same address.
func (u *upstream) with(name, lines string) string {
	return fmt.Sprintf("provider %s %s {\n%s\n}\n", name, u.URL, lines)
}

func TestProvidersLearnNothingOfTheCaller_B89(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	for _, name := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded", "Via", "X-Real-IP",
		"CF-Connecting-IP", "CF-Ray", "CDN-Loop", "True-Client-IP", "Traceparent", "Tracestate", "Baggage", "X-Usher-Priority",
		"OpenAI-Organization", "OpenAI-Project", "X-Goog-User-Project", "X-HTTP-Method-Override", "If-None-Match",
	} {
		n := len(up.seen())
		st.ask(chatBody, http.StatusOK, header(name, "tells-much"))
		h := up.expect(t, n+1)[n].Header
		for field, values := range h {
			if strings.EqualFold(field, name) || strings.Contains(fmt.Sprint(values), "tells-much") {
				t.Errorf("the provider got %s: %q", field, values)
			}
		}
	}
	st.ask(chatBody, http.StatusOK, header("User-Agent", "OpenAI/Python 1"), header("X-Stainless-Lang", "python"), header("Accept-Encoding", "gzip"))
	h := up.seen()[len(up.seen())-1].Header
	if h.Get("User-Agent") != "OpenAI/Python 1" || h.Get("X-Stainless-Lang") != "python" {
		t.Errorf("what the SDK says of itself did not arrive: %v", h)
	}
	if h.Get("Accept-Encoding") != "identity" {
		t.Errorf("Accept-Encoding %q, want identity: answers are read on their way", h.Get("Accept-Encoding"))
	}
}

// What a caller says of the account that pays must not be held against the key.
func TestNoCallerCanMakeTheProviderRefuseTheKey(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Openai-Organization")+r.Header.Get("Openai-Project") == "" && !r.URL.Query().Has("access_token") {
			chats()(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"invalid_request_error","code":"mismatched_organization"}}`)
	})
	st := serve(t, setup{usher: up.provider() + model(up)})
	for _, option := range []func(*http.Request){
		header("OpenAI-Organization", "org-other"),
		header("OpenAI-Project", "proj-other"),
		func(r *http.Request) { r.URL.RawQuery = "access_token=other" },
	} {
		st.ask(chatBody, http.StatusOK, option)
	}
}

func TestCallersLearnNothingOfTheKey_B56_B89(t *testing.T) {
	kept := []string{"X-Request-Id", "up-1", "Openai-Processing-Ms", "12", "Retry-After", "3"}
	dropped := []string{
		"Set-Cookie", "s=1", "Alt-Svc", "h3", "Server", "nginx", "Strict-Transport-Security", "max-age=1", "Openai-Organization", "org",
		"X-Ratelimit-Remaining-Requests", "3", "Ratelimit", "r=3", "Access-Control-Allow-Origin", "*", "X-Usher-Reason", "forged",
		"X-Usher-Request-Id", "forged", "Server-Timing", "forged", "Nel", "1", "Report-To", "1",
	}
	up := newUpstream(t, chats(append(kept, dropped...)...))
	st := serve(t, setup{usher: up.provider() + model(up)})
	r := st.ask(chatBody, http.StatusOK)
	for i := 0; i < len(kept); i += 2 {
		if got := r.Header.Get(kept[i]); got != kept[i+1] {
			t.Errorf("%s: %q, want %q", kept[i], got, kept[i+1])
		}
	}
	for i := 0; i < len(dropped); i += 2 {
		if got := r.Header.Values(dropped[i]); slices.Contains(got, dropped[i+1]) {
			t.Errorf("the caller got %s: %q", dropped[i], got)
		}
	}
	if got := r.Header.Values("Server"); !slices.Equal(got, []string{"Caddy"}) {
		t.Errorf("Server: %q", got)
	}
}

// Each answer of the pipeline has one ID, which is ours.
func TestEachAnswerHasOneID_B90(t *testing.T) {
	limitedUp, broken, good := newUpstream(t, limited("X-Usher-Request-Id", "forged")), newAbsent(t), newUpstream(t, chats())
	st := serve(t, setup{usher: limitedUp.provider() + broken.provider() + good.provider() + "max_body 1KiB\n" +
		"model l " + limitedUp.name + "\nmodel b " + broken.name + "\nmodel m " + good.name + "\n"})
	seen := map[string]bool{}
	for body, status := range map[string]int{
		chatBody: 200, `{"model":"l"}`: 429, `{"model":"b"}`: 502, `{"model":"x"}`: 404, `{}`: 400, strings.Repeat(" ", 2000): 413,
	} {
		r := st.ask(body, status, header("X-Usher-Request-Id", "caller-42"))
		ids := r.Header.Values("X-Usher-Request-Id")
		if len(ids) != 1 || ids[0] == "caller-42" || ids[0] == "forged" || seen[ids[0]] {
			t.Errorf("status %d: IDs %q", status, ids)
		}
		seen[ids[0]] = true
		if timing := r.Header.Get("Server-Timing"); !strings.HasPrefix(timing, "select;dur=") || !strings.Contains(timing, ", admit;dur=") ||
			!strings.Contains(timing, ", upstream;dur=") {
			t.Errorf("status %d: Server-Timing %q", status, timing)
		}
		if d := st.decision(ids[0]); d.Status != status {
			t.Errorf("status %d: the record says %d", status, d.Status)
		}
	}
}

// An ID that a caller brings is the caller's: it names nothing here, whatever
// it is made of.
func TestRequestIDsOfCallersAreTheirOwn_B90(t *testing.T) {
	up := newUpstream(t, chats("X-Request-Id", "up-1"), streams(streamAnswer))
	st := serve(t, setup{usher: up.provider() + model(up)})
	seen := map[string]bool{}
	for name, ids := range map[string][]string{
		"one": {"caller-42"}, "long": {strings.Repeat("x", 4000)}, "odd": {"caf\xe9 \"x\" {\\n}"}, "two": {"a", "b"}, "none": nil,
	} {
		for _, body := range []string{chatBody, streamBody, `{"model":"none"}`} {
			var options []option
			for _, id := range ids {
				options = append(options, header("X-Request-Id", id), header("X-Usher-Request-Id", id))
			}
			r := st.do(http.MethodPost, chatPath, body, options...)
			got := r.Header.Values("X-Usher-Request-Id")
			if len(got) != 1 || slices.Contains(ids, got[0]) || seen[got[0]] {
				t.Errorf("%s: IDs %q", name, got)
			}
			seen[got[0]] = true
			if id := r.Header.Values("X-Request-Id"); len(id) > 1 || len(id) == 1 && id[0] != "up-1" {
				t.Errorf("%s: X-Request-Id %q, want the provider's or none", name, id)
			}
			if st.decision(got[0]).ID != got[0] {
				t.Errorf("%s: no record of %s", name, got[0])
			}
		}
	}
	for _, h := range up.seen() {
		if got := h.Header.Values("X-Usher-Request-Id"); len(got) > 0 {
			t.Errorf("the provider got %q", got)
		}
	}
	for line := range strings.Lines(st.log()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}

func TestHeaderOperationsOfAProvider(t *testing.T) {
	up := newUpstream(t, chats("X-Internal", "1", "X-Version", "old"))
	ops := []string{
		"header_up X-Caller {http.request.header.X-Team}",
		"header_up Authorization forged",
		"header_up -X-Drop",
		"header_up Host other.example",
		"header_down -X-Internal",
		"header_down X-Version old new",
		"header_down +X-Added {http.request.method}",
	}
	st := serve(t, setup{usher: up.provider(ops...) + model(up)})
	r := st.ask(chatBody, http.StatusOK, header("X-Team", "blue"), header("X-Drop", "1"))
	h := up.expect(t, 1)[0]
	if got := h.Header.Values("Authorization"); !slices.Equal(got, []string{"Bearer " + secret1}) {
		t.Errorf("Authorization %q, want the key's alone", got)
	}
	if h.Header.Get("X-Caller") != "blue" || h.Header.Get("X-Drop") != "" || h.Host != "other.example" {
		t.Errorf("host %q and header %v", h.Host, h.Header)
	}
	if r.Header.Get("X-Internal") != "" || r.Header.Get("X-Version") != "new" || r.Header.Get("X-Added") != http.MethodPost {
		t.Errorf("answer %v", r.Header)
	}
}

func TestRequestsGoToTheAddressOfTheirProvider(t *testing.T) {
	up := newUpstream(t, chats())
	for base, want := range map[string]string{
		"":               "/v1/chat/completions?q=1",
		"/":              "/v1/chat/completions?q=1",
		"/v1":            "/v1/chat/completions?q=1",
		"/v1/":           "/v1/chat/completions?q=1",
		"/openai/v1":     "/openai/v1/chat/completions?q=1",
		"/gateway":       "/gateway/v1/chat/completions?q=1",
		"/dev1":          "/dev1/v1/chat/completions?q=1",
		"/with%2Fslash":  "/with%2Fslash/v1/chat/completions?q=1",
		"/with%20space/": "/with%20space/v1/chat/completions?q=1",
	} {
		t.Run(base, func(t *testing.T) {
			st := serve(t, setup{usher: fmt.Sprintf("provider p %s%s {\n%s\n}\nmodel m p\n", up.URL, base, key(1))})
			n := len(up.seen())
			r := st.do(http.MethodPost, chatPath+"?q=1", chatBody, func(r *http.Request) { r.Host = "gateway.example" })
			if r.StatusCode != http.StatusOK {
				t.Fatalf("status %s: %s", r.Status, r.body)
			}
			h := up.expect(t, n+1)[n]
			if h.RequestURI != want || "http://"+h.Host != up.URL {
				t.Errorf("asked %s of %s, want %s of %s", h.RequestURI, h.Host, want, up.URL)
			}
		})
	}
}

func TestSecretsAreNowhereToBeSeen_B91(t *testing.T) {
	gone := newAbsent(t)
	bad := newUpstream(t, answers(http.StatusUnauthorized, `{"error":{"message":"Incorrect API key provided: `+secret2+`","code":"invalid_api_key"}}`))
	cut := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
	})
	st := serve(t, setup{
		site: "tracing",
		usher: gone.provider() + bad.providerOf(key(2)) + cut.provider() + inOrder + model(gone, bad) + "model c " + cut.name + "\n" +
			"caller c {\nkey {env.TEST_KEY_3}\n}\n",
	})
	trace := newTraceID()
	r := st.ask(chatBody, http.StatusServiceUnavailable, header("X-Goog-Api-Key", secret3), inTrace(trace))
	var shown strings.Builder
	shown.WriteString(fmt.Sprint(r.Header, r.body))
	if r, err := st.send(http.MethodPost, chatPath+"?key="+secret3, `{"model":"c"}`, inTrace(trace)); err == nil {
		t.Errorf("an answer that was cut looks whole: %s", r.body)
	}
	st.await(0, 0)
	shown.WriteString(string(st.adminGet("/usher/decisions", http.StatusOK)) + string(st.adminGet("/config/", http.StatusOK)))
	for _, s := range spans.await(t, trace, "handler 2", "usher.select 2", "usher.admit 3", "keys select 2",
		"fifo admit 3", "fifo release 3", "chat m 2", "chat c 1") {
		shown.WriteString(s.Span.String())
	}
	for line := range strings.Lines(st.log()) {
		if !strings.Contains(line, "http.log.access") { // which shows headers and queries as Caddy is told to
			shown.WriteString(line)
		}
	}
	for _, s := range []string{secret1, secret2, secret3} {
		if i := strings.Index(shown.String(), s); i >= 0 {
			t.Errorf("%s is shown: ...%s", s, shown.String()[max(0, i-200):i+len(s)])
		}
	}
}
