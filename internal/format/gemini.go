package format

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/policy"
)

// gemini is the format of Google's Gemini API, after its reference
// (ai.google.dev/api), the error model of Google's APIs (google.aip.dev/193)
// and its SDK (google.golang.org/genai v1.77.0).
var gemini = newDialect(dialect{
	name: Gemini,

	operations: slices.Concat(geminiOperations("/v1beta"), geminiOperations("/v1")),

	chunk: (*Meter).candidates,
	lists: true,

	usage: usageNames{
		at:        []int{atUsageMetadata},
		input:     [][]string{{"promptTokenCount"}, {"toolUsePromptTokenCount"}},
		output:    [][]string{{"candidatesTokenCount"}, {"thoughtsTokenCount"}},
		cached:    []string{"cachedContentTokenCount"},
		reasoning: []string{"thoughtsTokenCount"},
	},

	faults: geminiFaults,

	signed: func(r *http.Request) bool {
		return slices.ContainsFunc(geminiPaths, func(path string) bool { return strings.HasPrefix(r.URL.Path, path) }) ||
			r.Header.Get("X-Goog-Api-Key") != "" || stripParam(r.URL.RawQuery, credentialParam) != r.URL.RawQuery
	},

	refusal:    func(r Refusal) any { return geminiError{newGeminiErrorObject(r)} },
	credential: func(secret string) (field, value string) { return "X-Goog-Api-Key", secret },
	model:      func(m Model) any { return toGemini(m) },
	listing:    func(models []Model) any { return geminiListing{each(models, toGemini)} },
})

// geminiPaths begin what only Google has: its beta, its uploads, and Vertex.
var geminiPaths = []string{"/v1beta/", "/upload/", "/v1/projects/"}

// geminiMethods are the operations that a model is listed with. What it can do
// in truth is not known here.
var geminiMethods = []string{"generateContent", "countTokens", "embedContent", "batchEmbedContents"}

// geminiOperations returns the operations of a version of the API, which
// begins its paths.
func geminiOperations(version string) []Operation {
	models := version + "/models"
	generate := request{
		prompt:    []string{"systemInstruction", "system_instruction", "contents"},
		maxOutput: []string{"generationConfig.maxOutputTokens", "generation_config.max_output_tokens"},
		affinity:  []string{"cachedContent", "cached_content"},
	}
	stream := generate
	stream.streams = true
	return []Operation{
		{
			Name:   "generate_content",
			Method: http.MethodPost, Route: models + "/{model}:generateContent",
			request: generate,
		},
		{
			Name:   "generate_content",
			Method: http.MethodPost, Route: models + "/{model}:streamGenerateContent",
			request: stream,
		},
		{
			Name:   "embeddings",
			Method: http.MethodPost, Route: models + "/{model}:embedContent",
			request: request{models: []string{"model"}},
		},
		{
			Name:   "embeddings",
			Method: http.MethodPost, Route: models + "/{model}:batchEmbedContents",
			request: request{models: []string{"requests.*.model"}},
		},
		{
			Name:   "count_tokens",
			Method: http.MethodPost, Route: models + "/{model}:countTokens",
			Free:    true,
			request: request{models: []string{"generateContentRequest.model", "generate_content_request.model"}},
		},
		{Name: "models", Kind: ListModels, Method: http.MethodGet, Route: models},
		{Name: "models", Kind: GetModel, Method: http.MethodGet, Route: models + "/{model}"},
	}
}

// candidates tells what a chunk means by its candidates. One without any that
// tells why the prompt was blocked is an answer; any other has usage alone.
func (m *Meter) candidates() eventKind {
	v := m.text.Value(atCandidates)
	if v.TooLong {
		return content
	}
	if !empty(view(m.text.Value(atPromptFeedback).Raw).Get("blockReason")) {
		return terminal
	}
	m.ends = m.ends || v.Raw != nil
	kind := preamble
	view(v.Raw).ForEach(func(_, candidate gjson.Result) bool {
		switch {
		case candidate.Get("finishReason").Type == gjson.String:
			kind = terminal
		case kind == preamble && slices.ContainsFunc(candidate.Get("content.parts").Array(), hasContent):
			kind = content
		}
		return true
	})
	return kind
}

// geminiFaults are the errors of the Gemini API. The first rule that matches
// holds.
var geminiFaults = []faultRule{
	{status: []int{400}, phrases: []string{"exceeds the maximum number of tokens"}, is: policy.ContextLength},

	// A limit per day, or the account's credit. Where a limit per minute is
	// used up, too, the day's is what matters.
	{status: []int{429}, perDay: true, is: policy.QuotaExhausted}, // the limit tells what it is about
	{status: []int{429}, phrases: []string{"spending cap", "credits are depleted", "per day"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{status: []int{402}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{words: []string{"BILLING_DISABLED"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},
	{words: []string{"FAILED_PRECONDITION"}, phrases: []string{"enable billing"}, is: policy.QuotaExhausted, about: policy.SubjectAccount},

	// A key that is not valid, or has expired, is a 400.
	{
		words: []string{
			"API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "API_KEY_IP_ADDRESS_BLOCKED",
			"CREDENTIALS_MISSING", "ACCESS_TOKEN_EXPIRED", "ACCESS_TOKEN_TYPE_UNSUPPORTED",
		},
		is: policy.AuthFailed, about: policy.SubjectKey,
	},
	{words: []string{"SERVICE_DISABLED", "CONSUMER_INVALID", "CONSUMER_SUSPENDED"}, is: policy.AuthFailed, about: policy.SubjectAccount},
	{status: []int{401}, words: []string{"UNAUTHENTICATED"}, is: policy.AuthFailed, about: policy.SubjectKey},
	{status: []int{400, 403}, phrases: []string{"api key not valid", "api key expired", "api key was reported as leaked"}, is: policy.AuthFailed, about: policy.SubjectKey},
	// Our region, or a page of something on the way.
	{words: []string{"FAILED_PRECONDITION"}, phrases: []string{"user location"}, is: policy.UpstreamError},
	{status: []int{401}, is: policy.UpstreamError},
	{status: []int{403}, bare: true, is: policy.UpstreamError},

	{words: []string{"RESOURCE_EXHAUSTED"}, is: policy.RateLimited},
	{words: []string{"UNAVAILABLE"}, is: policy.Overloaded},
	{words: []string{"DEADLINE_EXCEEDED"}, is: policy.Timeout},
	{words: []string{"CANCELLED"}, is: policy.UpstreamError}, // not by us
	{status: []int{inStream}, words: []string{"INVALID_ARGUMENT"}, is: policy.ClientFault},
}

// A geminiError is the body of an answer that is an error, and an event of a
// stream.
type geminiError struct {
	Error geminiErrorObject `json:"error"`
}

type geminiErrorObject struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Status  string         `json:"status"`
	Details []geminiDetail `json:"details"`
}

// A geminiDetail is a google.rpc.ErrorInfo or a google.rpc.RetryInfo.
type geminiDetail struct {
	Type       string `json:"@type"`
	Reason     string `json:"reason,omitempty"`
	Domain     string `json:"domain,omitempty"`
	RetryDelay string `json:"retryDelay,omitempty"`
}

// geminiStatuses are the codes of errors by status.
var geminiStatuses = map[int]string{
	http.StatusBadRequest:            "INVALID_ARGUMENT",
	http.StatusUnauthorized:          "UNAUTHENTICATED",
	http.StatusNotFound:              "NOT_FOUND",
	http.StatusMethodNotAllowed:      "UNIMPLEMENTED",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	http.StatusUnsupportedMediaType:  "INVALID_ARGUMENT",
	http.StatusTooManyRequests:       "RESOURCE_EXHAUSTED",
	http.StatusBadGateway:            "UNAVAILABLE",
	http.StatusServiceUnavailable:    "UNAVAILABLE",
	http.StatusGatewayTimeout:        "DEADLINE_EXCEEDED",
}

// newGeminiErrorObject returns a refusal in Google's words.
func newGeminiErrorObject(r Refusal) geminiErrorObject {
	const rpc = "type.googleapis.com/google.rpc."
	e := geminiErrorObject{Code: r.Status, Message: r.Message, Status: geminiStatuses[r.Status]}
	e.Details = []geminiDetail{{Type: rpc + "ErrorInfo", Reason: strings.ToUpper(r.Code), Domain: "usher"}}
	if r.RetryAfter > 0 {
		wait := units(r.RetryAfter, time.Second) + "s"
		e.Details = append(e.Details, geminiDetail{Type: rpc + "RetryInfo", RetryDelay: wait})
	}
	return e
}

// A geminiModel is a Model in Google's words.
type geminiModel struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName"`
	Methods     []string `json:"supportedGenerationMethods"`
}

func toGemini(m Model) geminiModel { return geminiModel{resource + m.ID, m.ID, geminiMethods} }

type geminiListing struct {
	Models []geminiModel `json:"models"`
}
