package format

import (
	"net/http"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// anthropic is the format of Anthropic's Messages API, after its reference
// (platform.claude.com/docs/en/api: messages, streaming, errors, rate-limits)
// and its SDK (github.com/anthropics/anthropic-sdk-go/v2, v2.15.0).
var anthropic = newDialect(dialect{
	name: Anthropic,

	operations: slices.Concat([]Operation{
		{
			Name:   "chat",
			Method: http.MethodPost, Route: "/v1/messages",
			request: request{
				model: "model", stream: "stream",
				prompt:    []string{"system", "messages"},
				maxOutput: []string{"max_tokens"},
				affinity:  []string{"metadata.user_id"},
				files:     true,
			},
		},
		{
			Name:   "count_tokens",
			Method: http.MethodPost, Route: "/v1/messages/count_tokens",
			Free:    true,
			request: request{model: "model"},
		},
		{Name: "models", Kind: ListModels, Method: http.MethodGet, Route: "/v1/models"},
		{Name: "models", Kind: GetModel, Method: http.MethodGet, Route: "/v1/models/{model}"},
	},
		stored("batches", "/v1/messages/batches"),
		stored("files", "/v1/files"),
	),

	// Every other event has content: the delta of a block, and that of the
	// message, which tells why it ended.
	events: map[string]eventKind{
		"ping":                preamble,
		"message_start":       preamble,
		"content_block_start": preamble,
		"content_block_stop":  preamble,
		"message_stop":        terminal,
		"error":               fault,
	},
	chunk:  func(*Meter) eventKind { return content },
	begins: "message_start",

	// The first event has a message with the usage of the prompt; later ones
	// tell that of the output, and perhaps all.
	usage: usageNames{
		at: []int{atUsage, atMessage},
		input: [][]string{
			{"input_tokens", "usage.input_tokens"},
			{"cache_creation_input_tokens", "usage.cache_creation_input_tokens"},
			{"cache_read_input_tokens", "usage.cache_read_input_tokens"},
		},
		output:    [][]string{{"output_tokens", "usage.output_tokens"}},
		cached:    []string{"cache_read_input_tokens", "usage.cache_read_input_tokens"},
		reasoning: []string{"output_tokens_details.thinking_tokens"},
	},

	faults: anthropicFaults,
	limits: []limit{
		{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
		{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
		{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
	},

	signed: func(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" },

	refusal: func(r Refusal) any {
		return anthropicError{"error", anthropicErrorObject{anthropicType(r), r.Message}}
	},
	errorEvent: "error",
	credential: func(secret string) (field, value string) { return "X-Api-Key", secret },
	model:      func(m Model) any { return toAnthropic(m) },
	listing: func(models []Model) any {
		l := anthropicListing{Data: each(models, toAnthropic)}
		if len(models) > 0 {
			l.FirstID, l.LastID = &l.Data[0].ID, &l.Data[len(models)-1].ID
		}
		return l
	},
})

// anthropicFaults are the errors of Anthropic and of providers that speak its
// format, after platform.claude.com/docs/en/api/errors and /rate-limits. The
// first rule that matches holds.
var anthropicFaults = []faultRule{
	{status: []int{400, inStream}, phrases: []string{"prompt is too long", "exceed context limit"}, is: policy.ContextLength},

	// The account has no credit left, or has reached a limit that its owner
	// set: both are invalid_request_error of status 400. That of its tier is a
	// rate_limit_error with no time to come back but in words.
	{words: []string{"enforced_spend_limit_reached"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{status: []int{400, 429}, phrases: []string{"credit balance is too low", "api usage limits"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{words: []string{"billing_error"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{status: []int{402}, is: policy.QuotaExhausted, about: policy.SubjectAccount},

	// What a browser's Origin brought about is the caller's, and our key is
	// fine.
	{status: []int{401}, phrases: []string{"cors requests"}, is: policy.ClientFault},
	{status: []int{401, 403, inStream}, words: []string{"authentication_error"}, is: policy.AuthFailed, about: policy.SubjectKey},
	{status: []int{400, 403}, phrases: []string{"organization has been disabled"}, is: policy.AuthFailed, about: policy.SubjectAccount},
	{status: []int{403}, words: []string{"permission_error"}, phrases: []string{"oauth"}, is: policy.AuthFailed, about: policy.SubjectKey},
	// Our region, or a page of something on the way.
	{status: []int{403}, words: []string{"forbidden"}, is: policy.UpstreamError},
	{status: []int{401}, is: policy.UpstreamError},
	{status: []int{403}, bare: true, is: policy.UpstreamError},

	{words: []string{"rate_limit_error"}, is: policy.RateLimited},
	{words: []string{"overloaded_error"}, is: policy.Overloaded},
	{words: []string{"timeout_error"}, is: policy.Timeout},
	{
		status: []int{inStream},
		words:  []string{"invalid_request_error", "permission_error", "not_found_error", "request_too_large"},
		is:     policy.ClientFault,
	},
}

// An anthropicError is the body of an answer that is an error, and an event of
// a stream.
type anthropicError struct {
	Type  string               `json:"type"`
	Error anthropicErrorObject `json:"error"`
}

type anthropicErrorObject struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// anthropicTypes are the types of errors by status.
var anthropicTypes = map[int]string{
	http.StatusBadRequest:            "invalid_request_error",
	http.StatusUnauthorized:          "authentication_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusMethodNotAllowed:      "invalid_request_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusUnsupportedMediaType:  "invalid_request_error",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

// anthropicType returns the type of a refusal.
func anthropicType(r Refusal) string {
	kind, ok := anthropicTypes[r.Status]
	switch {
	case ok:
		return kind
	case r.Code == string(policy.Overloaded):
		return "overloaded_error"
	}
	return "api_error"
}

// An anthropicModel is a Model in Anthropic's words.
type anthropicModel struct {
	Type        string    `json:"type"`
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}

func toAnthropic(m Model) anthropicModel {
	return anthropicModel{"model", m.ID, m.ID, time.Unix(m.Created, 0).UTC()}
}

type anthropicListing struct {
	Data    []anthropicModel `json:"data"`
	HasMore bool             `json:"has_more"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
}
