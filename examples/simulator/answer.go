package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// filler is what an answer says after the names.
var filler = strings.Fields(`is happy to help you with this simulated answer
which says nothing new and goes on until it has as many tokens as it should`)

// tokens returns the answer, and whether it was cut short by the request.
// Joined, the tokens are the text.
func (x *exchange) tokens() (tokens []string, cut bool) {
	n := x.provider.Tokens
	for _, limit := range []int{x.body.MaxTokens, x.body.MaxCompletionTokens, x.body.MaxOutputTokens} {
		if limit > 0 && limit < n {
			n, cut = limit, true
		}
	}
	words := []string{"provider=" + x.provider.Name, "key=" + x.key, "model=" + x.body.Model}
	for i := range n {
		word := ""
		if i < len(words) {
			word = words[i]
		} else {
			word = filler[(i-len(words))%len(filler)]
		}
		if i > 0 {
			word = " " + word
		}
		tokens = append(tokens, word)
	}
	return tokens, cut
}

// inputTokens is a rough count, as good as a tokenizer for a simulation.
func (x *exchange) inputTokens() int { return 1 + len(x.prompt)/4 }

// usage is how chat and text completions count tokens.
func (x *exchange) usage(output int) map[string]int {
	in := x.inputTokens()
	return map[string]int{"prompt_tokens": in, "completion_tokens": output, "total_tokens": in + output}
}

func finishReason(cut bool) string {
	if cut {
		return "length"
	}
	return "stop"
}

// id names the answer.
func (x *exchange) id(prefix string) string {
	return prefix + strconv.FormatInt(x.call.record.Start.UnixNano(), 36)
}

// events writes a stream of server-sent events, the tokens at their pace.
type events struct {
	x     *exchange
	rc    *http.ResponseController
	named bool // each event has its type's name
	err   error
}

func (x *exchange) events(named bool) *events {
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.Header().Set("Cache-Control", "no-cache")
	return &events{x: x, rc: http.NewResponseController(x.w), named: named}
}

// send writes one event, without flushing it.
func (e *events) send(kind string, v any) {
	if e.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.sendRaw(kind, string(b))
}

func (e *events) sendRaw(kind, data string) {
	if e.err != nil {
		return
	}
	if e.named {
		_, e.err = fmt.Fprintf(e.x.w, "event: %s\ndata: %s\n\n", kind, data)
		return
	}
	_, e.err = fmt.Fprintf(e.x.w, "data: %s\n\n", data)
}

func (e *events) flush() {
	if e.err == nil {
		e.err = e.rc.Flush()
	}
}

// each sends the tokens, one event each, and returns false if the client left.
func (e *events) each(tokens []string, event func(token string)) bool {
	for i, token := range tokens {
		if !e.x.wait(i) {
			return false
		}
		event(token)
		e.flush()
	}
	return e.err == nil
}

// end marks the answer as complete. What is sent after it is the last that
// the client sees.
func (e *events) end() { e.x.call.end(http.StatusOK, time.Now()) }

func join(tokens []string) string { return strings.Join(tokens, "") }
