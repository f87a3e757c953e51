package format

import (
	"net/http"
	"slices"
	"strings"
)

// openAIOperations are those of OpenAI's own paths. Of two that are at a path the
// first one counts.
var openAIOperations = slices.Concat([]Operation{
	{
		Name: "chat", APIType: "chat_completions",
		Method: http.MethodPost, Route: "/v1/chat/completions", deployed: true,
		request: request{
			model: "model", stream: "stream", options: "stream_options",
			prompt:    []string{"messages"},
			maxOutput: []string{"max_completion_tokens", "max_tokens"},
			affinity:  []string{"prompt_cache_key", "safety_identifier", "user"},
			files:     true,
		},
	},
	{
		Name:   "text_completion",
		Method: http.MethodPost, Route: "/v1/completions", deployed: true,
		request: request{
			model: "model", stream: "stream", options: "stream_options",
			maxOutput: []string{"max_tokens"},
			affinity:  []string{"user"},
		},
	},
	{
		Name: "chat", APIType: "responses",
		Method: http.MethodPost, Route: "/v1/responses", Keeps: true,
		request: request{
			model: "model", stream: "stream",
			prompt:    []string{"instructions", "input"},
			maxOutput: []string{"max_output_tokens"},
			affinity:  []string{"prompt_cache_key", "conversation", "conversation.id", "safety_identifier", "user"},
			answers:   []string{"previous_response_id"},
			things:    []string{"conversation", "conversation.id"},
			files:     true,
		},
		streamError: func(r Refusal) (string, any) {
			return "error", responsesError{"error", orNull(r.Code), r.Message, orNull(r.Param), 0}
		},
	},
	{
		Name:   "count_tokens",
		Method: http.MethodPost, Route: "/v1/responses/input_tokens", Free: true,
		request: request{model: "model", answers: []string{"previous_response_id"}, things: []string{"conversation", "conversation.id"}, files: true},
	},
	{
		Name: "chat", APIType: "responses",
		Method: http.MethodPost, Route: "/v1/responses/compact",
		request: request{model: "model", answers: []string{"previous_response_id"}},
	},
	{
		Name:   "embeddings",
		Method: http.MethodPost, Route: "/v1/embeddings", deployed: true,
		request: request{model: "model", affinity: []string{"user"}},
	},
	{
		Name:   "moderation",
		Method: http.MethodPost, Route: "/v1/moderations",
		request: request{model: "model"},
	},
	{
		Name:   "generate_content",
		Method: http.MethodPost, Route: "/v1/images/generations", deployed: true,
		request: request{model: "model", stream: "stream", affinity: []string{"user"}},
	},
	{
		Name:   "generate_content",
		Method: http.MethodPost, Route: "/v1/images/edits", deployed: true,
		request: request{forms: true, model: "model", stream: "stream", affinity: []string{"user"}},
	},
	{
		Name:   "generate_content",
		Method: http.MethodPost, Route: "/v1/images/variations",
		request: request{forms: true, model: "model", affinity: []string{"user"}},
	},
	{
		Name:   "speech",
		Method: http.MethodPost, Route: "/v1/audio/speech", deployed: true,
		request: request{model: "model"},
	},
	{
		Name:   "transcription",
		Method: http.MethodPost, Route: "/v1/audio/transcriptions", deployed: true,
		request: request{forms: true, model: "model", stream: "stream"},
	},
	{
		Name:   "translation",
		Method: http.MethodPost, Route: "/v1/audio/translations", deployed: true,
		request: request{forms: true, model: "model"},
	},
	{
		Name:   "generate_content",
		Method: http.MethodPost, Route: "/v1/videos", Keeps: true, Once: true,
		request: request{forms: true, model: "model"},
	},
	{Name: "realtime", Kind: Session, Method: http.MethodGet, Route: "/v1/realtime"},
	{Name: "chat", APIType: "responses", Kind: Session, Method: http.MethodGet, Route: "/v1/responses"},
	{Name: "models", Kind: ListModels, Method: http.MethodGet, Route: "/v1/models"},
	{Name: "models", Kind: GetModel, Method: http.MethodGet, Route: "/v1/models/{model}"},
},
	followUps("responses", "/v1/responses"),
	followUps("videos", "/v1/videos"),
	stored("files", "/v1/files"),
	stored("uploads", "/v1/uploads"),
	stored("batches", "/v1/batches"),
	stored("vector_stores", "/v1/vector_stores"),
	stored("conversations", "/v1/conversations"),
	stored("fine_tuning", "/v1/fine_tuning/jobs"),
)

const (
	// azure is what begins the paths of Azure's services.
	azure = "/openai"

	// azureDeployment begins those of operations that belong to a deployment,
	// which is a model under a name of its owner's.
	azureDeployment = azure + "/deployments/"

	version = "/v1"
)

// onAzure returns the operations as Azure has them as well: below /openai/v1,
// in versions with a date below /openai, and there those of a deployment below
// its name, which is then the model.
func onAzure(operations []Operation) []Operation {
	var all []Operation
	for _, under := range []string{azure + version, azure} {
		for _, op := range operations {
			op.under, op.Route = under, under+strings.TrimPrefix(op.Route, version)
			all = append(all, op)
		}
	}
	for _, op := range operations {
		if op.deployed {
			op.target, op.Route = op.Route, azureDeployment+"{model}"+strings.TrimPrefix(op.Route, version)
			all = append(all, op)
		}
	}
	return slices.Concat(operations, all)
}
