package format

import (
	"github.com/usherproxy/usher/policy"
)

// openAI is the format of OpenAI's API, after its OpenAPI document
// (github.com/openai/openai-openapi) and its guides to errors and rate limits,
// with what other providers of the format are known to answer.
var openAI = newDialect(dialect{
	name: OpenAI,

	operations: onAzure(openAIOperations),

	// Every other event of a stream has content, but for chunks without any.
	events: map[string]eventKind{
		"ping":                        preamble,
		"keepalive":                   preamble,
		"response.created":            preamble,
		"response.queued":             preamble,
		"response.in_progress":        preamble,
		"response.output_item.added":  preamble,
		"response.content_part.added": preamble,
		"response.completed":          terminal,
		"response.incomplete":         terminal,
		"image_generation.completed":  terminal,
		"image_edit.completed":        terminal,
		"transcript.text.done":        terminal,
		"speech.audio.done":           terminal,
		"response.failed":             fault,
		"error":                       fault,
	},

	chunk:  (*Meter).choices,
	begins: "response.created",

	usage: usageNames{
		at:        []int{atUsage, atResponseUsage},
		input:     [][]string{{"prompt_tokens", "input_tokens"}},
		output:    [][]string{{"completion_tokens", "output_tokens"}},
		cached:    []string{"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"},
		reasoning: []string{"completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"},
	},

	faults: openAIFaults,
	limits: []limit{
		{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	},

	refusal: func(r Refusal) any {
		return openAIError{openAIErrorObject{r.Message, r.Type, orNull(r.Param), orNull(r.Code)}}
	},
	credential: func(secret string) (field, value string) { return "Authorization", "Bearer " + secret },
	model:      func(m Model) any { return toOpenAI(m) },
	listing:    func(models []Model) any { return openAIListing{"list", each(models, toOpenAI)} },
})

// openAIFaults are the errors of OpenAI and of providers that speak its
// format. The first rule that matches holds. Their sources are what the
// providers document, at
//
//   - platform.openai.com/docs/guides/error-codes and /rate-limits
//   - learn.microsoft.com/azure/ai-foundry/openai (Azure)
//   - console.groq.com/docs/errors and /rate-limits (Groq)
//   - openrouter.ai/docs/api/reference/errors-and-debugging (OpenRouter)
//   - api-docs.deepseek.com/quick_start/error_codes (DeepSeek)
//   - docs.vllm.ai, and the server of llama.cpp
//
// and for what is not documented, what their users have reported.
var openAIFaults = []faultRule{
	// The prompt is longer than the model's window: OpenAI's code, the type of
	// llama.cpp, the words of vLLM and of OpenAI's older models.
	{words: []string{"context_length_exceeded", "exceed_context_size_error"}, is: policy.ContextLength},
	{status: []int{400}, phrases: []string{"maximum context length"}, is: policy.ContextLength},
	// One request with more tokens than the key may use in a minute, which is a
	// 413 of Groq. No wait helps it, and nobody else should wait for it.
	{status: []int{413, 429}, phrases: []string{"request too large"}, is: policy.ContextLength},

	// The account has no credit left, or its plan's window is used up (Codex,
	// with the instant in error.resets_at). DeepSeek and OpenRouter say 402.
	{
		words: []string{
			"insufficient_quota", "quota_exceeded", "credit_balance_exhausted", "billing_hard_limit_reached",
			"billing_not_active", "usage_limit_reached", "usage_not_included",
		},
		is: policy.QuotaExhausted, about: policy.SubjectAccount,
	},
	{status: []int{402}, is: policy.QuotaExhausted, about: policy.SubjectAccount},

	// Our account, and our key: OpenAI's codes, the type of Anthropic and
	// DeepSeek.
	{status: []int{400, 401, 403}, words: []string{"organization_restricted"}, is: policy.AuthFailed, about: policy.SubjectAccount}, // Groq
	{status: []int{401, 403}, words: []string{"account_deactivated"}, is: policy.AuthFailed, about: policy.SubjectAccount},
	{
		status: []int{401, 403},
		words: []string{
			"invalid_api_key", "authentication_error", "invalid_organization",
			"mismatched_organization", "mismatched_project", "missing_scope",
		},
		is: policy.AuthFailed, about: policy.SubjectKey,
	},
	{status: []int{401, 403}, phrases: []string{"missing scopes"}, is: policy.AuthFailed, about: policy.SubjectKey},
	// Some providers say 401 of a model that does not exist: the key is fine.
	{status: []int{401, 403}, phrases: []string{"model"}, is: policy.ClientFault},
	// OpenAI without a key, Azure, Fireworks.
	{status: []int{401}, phrases: []string{"api key", "subscription key"}, is: policy.AuthFailed, about: policy.SubjectKey},
	// A bare 401 may come from anything on the way. It is a failure, which the
	// breaker answers and which heals by itself.
	{status: []int{401}, is: policy.UpstreamError},
	// So may a 403 without an error object, such as a firewall's page; and the
	// region that is not served is our own, as is the network that Azure does
	// not let in.
	{status: []int{403}, words: []string{"unsupported_country_region_territory"}, is: policy.UpstreamError},
	{status: []int{403}, phrases: []string{"virtual network"}, is: policy.UpstreamError},
	{status: []int{403}, bare: true, is: policy.UpstreamError},

	// Codes before statuses, since an event of a stream has no status. OpenAI
	// names the model whose limit it is.
	{words: []string{"rate_limit_exceeded"}, phrases: []string{"rate limit reached for "}, is: policy.RateLimited, about: policy.SubjectModel},
	{words: []string{"rate_limit_exceeded", "rate_limit_error", "too_many_requests"}, is: policy.RateLimited},
	{
		words: []string{"server_is_overloaded", "overloaded_error", "engine_overloaded_error", "slow_down", "service_unavailable_error"},
		is:    policy.Overloaded,
	},
	{status: []int{498}, is: policy.Overloaded}, // Groq's flex tier is full
	{status: []int{inStream}, words: []string{"invalid_prompt", "invalid_request_error"}, is: policy.ClientFault},
}

// An openAIError is the body of an answer that is an error, and an event of a
// stream.
type openAIError struct {
	Error openAIErrorObject `json:"error"`
}

type openAIErrorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// A responsesError is the ResponseErrorEvent of the Responses API.
type responsesError struct {
	Type           string  `json:"type"`
	Code           *string `json:"code"`
	Message        string  `json:"message"`
	Param          *string `json:"param"`
	SequenceNumber int     `json:"sequence_number"`
}

// An openAIModel is a Model in OpenAI's words.
type openAIModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func toOpenAI(m Model) openAIModel { return openAIModel{m.ID, "model", m.Created, m.OwnedBy} }

type openAIListing struct {
	Object string        `json:"object"`
	Data   []openAIModel `json:"data"`
}

// orNull returns nil for the empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
