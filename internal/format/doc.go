// Package format is what Usher knows of the shapes of AI APIs: where a request
// names its model, how an answer streams, where it tells its usage, and what an
// error looks like. It is tables and pure functions; it sends nothing and
// decides nothing.
//
// A format (such as "openai") is one dialect value, and an operation of it one
// row of a table. Everything else works on those.
//
// # Operations
//
// The names are values of gen_ai.operation.name of the OpenTelemetry semantic
// conventions v1.41 where these have one. The Responses API is a chat to them
// (openai.api.type tells the two apart), and a picture is generated content.
// For moderations and the counting of tokens they have no word.
//
// Paths are exact and case-sensitive, and a slash at the end is another path.
// Where several formats have one path, the request shows whose it is: by
// anthropic-version, or by a key where only Google's SDKs put one. Every other
// one is OpenAI's.
//
// # The format openai
//
//	route                           name             API type          body         streams  output limit                       usage
//	POST /v1/chat/completions       chat             chat_completions  JSON         yes      max_completion_tokens, max_tokens  prompt_tokens, completion_tokens
//	POST /v1/completions            text_completion                    JSON         yes      max_tokens                         prompt_tokens, completion_tokens
//	POST /v1/responses              chat             responses         JSON         yes      max_output_tokens                  input_tokens, output_tokens
//	POST /v1/embeddings             embeddings                         JSON         no                                          prompt_tokens
//	POST /v1/moderations            moderation                         JSON         no                                          none
//	POST /v1/images/generations     generate_content                   JSON         yes                                         input_tokens, output_tokens
//	POST /v1/images/edits           generate_content                   form, JSON   yes                                         input_tokens, output_tokens
//	POST /v1/images/variations      generate_content                   form, JSON   no                                          input_tokens, output_tokens
//	POST /v1/audio/speech           speech                             JSON         as SSE                                      input_tokens, output_tokens, in a stream only
//	POST /v1/audio/transcriptions   transcription                      form         yes                                         input_tokens, output_tokens, unless it is told in seconds
//	POST /v1/audio/translations     translation                        form         no                                          none
//	POST /v1/responses/input_tokens count_tokens                       JSON         no                                          nothing is used
//	POST /v1/responses/compact      chat             responses         JSON         no                                          input_tokens, output_tokens
//	POST /v1/videos                 generate_content                   form, JSON   no                                          none
//	GET  /v1/models                 models                             answered from the configuration
//	GET  /v1/models/{model}         models                             answered from the configuration
//
// A GET of /v1/realtime or /v1/responses that asks for a WebSocket is a session,
// whose model is the parameter "model" of the query. Of what is said there only
// the usage is read, as responses tell it at their end.
//
// Besides there is what is about things that the provider's account stores, with
// GET, POST and DELETE: earlier answers (/v1/responses/{id}, /v1/videos/{id}, and
// what is below them), and files, uploads, batches, vector_stores, conversations
// and fine_tuning/jobs with all that is below them. No model is named there, and
// the answers, which are passed on whatever they are, use no tokens.
//
// The same are below /openai/v1 and, in Azure's versions with a date, /openai,
// and those that Azure has below a deployment are at /openai/deployments/{model},
// too: its path names the model, whatever the body says, and the body names it
// where it is sent.
//
// The model is the member "model" of the JSON body, or the field of a form,
// where it may stand before or behind the files. It must be given, also where
// OpenAI itself has a default, because there is nothing else to choose a
// candidate by. Forms are read strictly: see form.go.
//
// A stream is asked for with "stream": true and comes as server-sent events.
// Usage is the member "usage" of the answer, of an event, or of an event's
// "response"; chat and completions tell it in a stream only if the caller asked
// for it with stream_options. A stream of chat or completions ends with [DONE],
// though not every provider sends it; its chunks mention finish_reason, which is
// null until the end, and where none does, there is no word for the end, either.
// One of responses ends with an event of type response.completed,
// response.incomplete or response.failed, one of images with
// image_generation.completed.
//
// An error is {"error": {"message", "type", "param", "code"}} with a status, or
// the same object as an event of a stream. The Responses API sends an event of
// type "error" with message, code and param at its top, or response.failed with
// them in response.error. Other providers of the format differ in what they
// leave out; see the tables in openai.go.
//
// # The format anthropic
//
//	route                           name          streams  output limit  usage
//	POST /v1/messages               chat          yes      max_tokens    input_tokens + cache_creation_input_tokens + cache_read_input_tokens, output_tokens
//	POST /v1/messages/count_tokens  count_tokens  no                     nothing is used
//	GET  /v1/models                 models        answered from the configuration
//	GET  /v1/models/{model}         models        answered from the configuration
//
// Message batches (/v1/messages/batches) and files (/v1/files) are stored things,
// as in OpenAI's format.
//
// The model and the flag of a stream are members of the body, as in OpenAI's.
// Usage is the member "usage" of the answer; in a stream message_start tells
// that of the prompt, in its message, and message_delta that of the output so
// far, and perhaps all. Input is what was read from and written to the cache,
// too. A stream ends with message_stop; what precedes its first delta is
// preamble.
//
// An error is {"type": "error", "error": {"type", "message"}} with a status, or
// the same object as an event named error. There is no code, so two of its
// kinds can be told by their message only: a prompt that is too long, and an
// account without credit, are both invalid_request_error; see the table in
// anthropic.go.
//
// The key is sent as x-api-key. The header anthropic-version is the caller's,
// and stays.
//
// # The format gemini
//
// Every route begins with /v1beta or with /v1.
//
//	route                                       name              streams  output limit                      usage
//	POST /models/{model}:generateContent        generate_content  no       generationConfig.maxOutputTokens  promptTokenCount + toolUsePromptTokenCount, candidatesTokenCount + thoughtsTokenCount
//	POST /models/{model}:streamGenerateContent  generate_content  always   generationConfig.maxOutputTokens  the same
//	POST /models/{model}:embedContent           embeddings        no                                         the same, if any
//	POST /models/{model}:batchEmbedContents     embeddings        no                                         the same, if any
//	POST /models/{model}:countTokens            count_tokens      no                                         nothing is used
//	GET  /models                                models            answered from the configuration
//	GET  /models/{model}                        models            answered from the configuration
//
// The path names the model, and its escapes count for what they mean. A body
// that names it, too, must name the same one, because there is but one model to
// admit and to route. Tuned models (/tunedModels/) and the paths of Vertex AI
// (/projects/) are not served.
//
// A stream comes as server-sent events with ?alt=sse, and else as one JSON list
// of the same objects, in which no event of our own can stand. Usage is the
// member "usageMetadata"; a stream tells it in every event, counting up. There
// is no event for the end: a candidate has a finishReason, or the prompt was
// blocked.
//
// An error is {"error": {"code", "message", "status", "details"}} with a status
// or in a stream, where code is the status. A key that is not valid is a 400; a
// limit names itself in details, and when it is whole again, which is true of a
// limit of a minute and not of one of a day.
//
// The key is sent as x-goog-api-key.
//
// # Sources
//
// OpenAI: its OpenAPI document (github.com/openai/openai-openapi) and guides.
// Anthropic: platform.claude.com/docs/en/api (messages, streaming, errors,
// rate-limits) and github.com/anthropics/anthropic-sdk-go/v2 v2.15.0. Gemini:
// ai.google.dev/api, google.aip.dev/193 (errors) and google.golang.org/genai
// v1.77.0. What providers answer beyond these is from reports of their users;
// the texts are in testdata/errors.
//
// # Estimates
//
// The size of a prompt in tokens is estimated from the size of the body: see
// [Body.InputTokens].
package format
