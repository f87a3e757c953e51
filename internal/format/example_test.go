package format_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/usherproxy/usher/internal/format"
)

// A request on its way to a provider.
func Example() {
	op, _ := format.Find(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))

	body := []byte(`{"model": "fast", "stream": true, "messages": []}`)
	b, err := op.Scan("/v1/chat/completions", "", body)
	fmt.Println(op.Name, b.Model, b.Stream, err)
	for _, e := range b.Edits("gpt-4o-mini") {
		fmt.Printf("%s becomes %s\n", body[e.Start:e.End], e.Text)
	}

	_, err = op.Scan("/v1/chat/completions", "", []byte(`{"messages": []}`))
	fmt.Println(err)
	// Output:
	// chat fast true <nil>
	// "fast" becomes "gpt-4o-mini"
	// you must provide a model parameter
}

// An answer on its way back.
func ExampleMeter() {
	op, _ := format.Find(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))
	m := format.NewMeter(op, http.Header{"Content-Type": {"text/event-stream"}}, true)

	fmt.Fprintf(m, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n")
	fmt.Println("content:", m.FirstContent())
	fmt.Fprintf(m, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n")
	fmt.Println("content:", m.FirstContent())
	fmt.Fprintf(m, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	_ = m.Close()
	fmt.Println("done:", m.Done(), "tokens:", m.Usage().Total())
	// Output:
	// content: false
	// content: true
	// done: true tokens: 4
}

// A provider that refuses.
func ExampleOperation_Classify() {
	op, _ := format.Find(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil))
	now := time.Now()

	r := op.Classify(now, 429, http.Header{"Retry-After": {"20"}}, []byte(`{"error":{"code":"rate_limit_exceeded"}}`))
	fmt.Println(r.Disposition, r.Until.Sub(now))
	r = op.Classify(now, 429, nil, []byte(`{"error":{"code":"insufficient_quota"}}`))
	fmt.Println(r.Disposition, r.Until.IsZero())
	// Output:
	// rate_limited 20s
	// quota_exhausted true
}
