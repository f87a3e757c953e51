// Package format is what Usher knows of the shapes of AI APIs: where a request
// names its model, how an answer streams, where it tells its usage, and what an
// error looks like. It is tables and pure functions; it sends nothing and
// decides nothing.
//
// A format (such as "openai") is one dialect value, and an operation of it one
// row of a table. Everything else works on those.
//
// # Operations of the format openai
//
// The names are values of gen_ai.operation.name of the OpenTelemetry semantic
// conventions v1.41 where these have one. The Responses API is a chat to them
// (openai.api.type tells the two apart), and a picture is generated content.
// For moderations they have no word.
//
//	route                        name             API type          streams  output limit                       usage
//	POST /v1/chat/completions    chat             chat_completions  yes      max_completion_tokens, max_tokens  prompt_tokens, completion_tokens
//	POST /v1/completions         text_completion                    yes      max_tokens                         prompt_tokens, completion_tokens
//	POST /v1/responses           chat             responses         yes      max_output_tokens                  input_tokens, output_tokens
//	POST /v1/embeddings          embeddings                         no                                          prompt_tokens
//	POST /v1/moderations         moderation                         no                                          none
//	POST /v1/images/generations  generate_content                   yes                                         input_tokens, output_tokens
//	GET  /v1/models              models                             answered from the configuration
//	GET  /v1/models/{model}      models                             answered from the configuration
//
// Paths are exact and case-sensitive, and a slash at the end is another path.
//
// The model is the member "model" of the JSON body. It must be given, also
// where OpenAI itself has a default, because there is nothing else to choose a
// candidate by.
//
// A stream is asked for with "stream": true and comes as server-sent events.
// Usage is the member "usage" of the answer, of an event, or of an event's
// "response"; chat and completions tell it in a stream only if the caller asked
// for it with stream_options. A stream of chat or completions ends with [DONE],
// though not every provider sends it; one of responses ends with an event of
// type response.completed, response.incomplete or response.failed, one of
// images with image_generation.completed.
//
// An error is {"error": {"message", "type", "param", "code"}} with a status, or
// the same object as an event of a stream. The Responses API sends an event of
// type "error" with message, code and param at its top, or response.failed with
// them in response.error. Other providers of the format differ in what they
// leave out; see the tables in openai.go.
//
// # Estimates
//
// The size of a prompt in tokens is estimated from the size of the body: see
// [Body.InputTokens].
package format
