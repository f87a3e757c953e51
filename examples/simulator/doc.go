// Package simulator is a Caddy handler that plays an AI provider with the
// OpenAI API, so that a proxy can be tried and tested with no account anywhere.
//
// It answers chat completions, completions, responses, embeddings,
// moderations, image generations and model lists at a chosen speed, enforces
// limits per key as a provider would, and counts exactly what it is asked:
//
//  1. A request is in flight from the start of the handler until its answer is
//     ready to end, or its client has left. It is not in flight any more when
//     the client can see the end of the answer.
//  2. A key's concurrency is never passed unnoticed: each request that comes
//     while the key is full is refused and counted as over the limit.
//  3. Handlers of one name share their counts, also over a reload of the
//     configuration.
package simulator
