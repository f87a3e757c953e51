package simulator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// maxBody bounds the body of a request.
const maxBody = 64 << 20

// operations maps the ends of paths to what is asked there. The first that
// fits wins.
var operations = []struct {
	method, path, name string
	answer             func(*exchange) error
}{
	{http.MethodPost, "/chat/completions", "chat", (*exchange).chat},
	{http.MethodPost, "/completions", "text_completion", (*exchange).completion},
	{http.MethodPost, "/responses", "responses", (*exchange).response},
	{http.MethodPost, "/embeddings", "embeddings", (*exchange).embeddings},
	{http.MethodPost, "/moderations", "moderations", (*exchange).moderations},
	{http.MethodPost, "/images/generations", "images", (*exchange).images},
	{http.MethodGet, "/models", "models", (*exchange).models},
}

// exchange is one request and its answer.
type exchange struct {
	provider *Provider
	call     *call
	w        http.ResponseWriter
	ctx      context.Context
	key      string
	body     request
	prompt   string
}

// request has the fields of a request that change its answer.
type request struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	Messages      json.RawMessage `json:"messages"`
	Prompt        json.RawMessage `json:"prompt"`
	Input         json.RawMessage `json:"input"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxOutputTokens     int `json:"max_output_tokens"`

	Dimensions     int    `json:"dimensions"`
	EncodingFormat string `json:"encoding_format"`
	N              int    `json:"n"`
}

var tagPattern = regexp.MustCompile(`#tag=([\w.-]+)`)

// ServeHTTP answers every request itself.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch r.Method + " " + r.URL.Path {
	case "GET /simulator/stats":
		return writeJSON(w, http.StatusOK, p.ledger.stats(p.Name))
	case "POST /simulator/faults":
		return p.injectFault(w, r)
	case "DELETE /simulator/faults":
		p.ledger.heal()
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return p.serve(w, r)
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) error {
	c, refused := p.ledger.begin(p, secretOf(r.Header), time.Now())
	defer func() { c.end(statusGone, time.Now()) }()

	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}
	x := &exchange{provider: p, call: c, w: w, ctx: r.Context(), key: c.record.Key}
	badBody := len(raw) > 0 && json.Unmarshal(raw, &x.body) != nil
	x.prompt = string(x.body.Messages) + string(x.body.Prompt) + string(x.body.Input)

	name, answer := route(r)
	c.describe(name, x.body.Model, tagOf(x.prompt))
	switch {
	case refused != nil:
		return x.refuse(refused)
	case answer == nil:
		return x.refuse(refuse(http.StatusNotFound, "", 0))
	case badBody || r.Method == http.MethodPost && len(raw) == 0:
		return x.refuse(refuse(http.StatusBadRequest, "", 0))
	}
	return answer(x)
}

// route returns the operation that a request asks for; answer is nil if there
// is none.
func route(r *http.Request) (name string, answer func(*exchange) error) {
	path := r.URL.Path
	for _, o := range operations {
		if r.Method == o.method && strings.HasSuffix(path, o.path) {
			return o.name, o.answer
		}
	}
	if dir, id, _ := cutLast(path, "/"); r.Method == http.MethodGet && id != "" && strings.HasSuffix(dir, "/models") {
		return "model", func(x *exchange) error { return x.json(modelObject(x.provider.Name, id)) }
	}
	return "", nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func secretOf(h http.Header) string {
	if s, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok {
		return s
	}
	return h.Get("Api-Key")
}

func tagOf(prompt string) string {
	if m := tagPattern.FindStringSubmatch(prompt); m != nil {
		return m[1]
	}
	return ""
}

func (p *Provider) injectFault(w http.ResponseWriter, r *http.Request) error {
	var f Fault
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	dec.DisallowUnknownFields()
	err := dec.Decode(&f)
	if err == nil && f.RetryAfter != "" {
		f.retryAfter, err = time.ParseDuration(f.RetryAfter)
	}
	if err != nil || !isErrorStatus(f.Status) {
		bad := refuse(http.StatusBadRequest, "", 0)
		bad.message = `A fault is an object such as {"key": "k1", "status": 429, "retry_after": "3s", "count": 2}.`
		return bad.write(w)
	}
	p.ledger.inject(f)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refuse answers with an error.
func (x *exchange) refuse(r *refusal) error {
	x.call.end(r.status, time.Now())
	return r.write(x.w)
}

// json answers at once.
func (x *exchange) json(v any) error {
	x.call.end(http.StatusOK, time.Now())
	return writeJSON(x.w, http.StatusOK, v)
}

// wait blocks until the token of index i is due. It returns false if the
// client left before.
func (x *exchange) wait(i int) bool {
	d := time.Until(x.provider.pace(x.call.record.Start, i))
	if d <= 0 {
		return x.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-x.ctx.Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}
