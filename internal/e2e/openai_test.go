package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const (
	hello       = "Hello from the upstream."
	callerKey   = "sk-e2e-caller"
	upstreamKey = "sk-e2e-upstream"
)

// startBeforeAimock runs Usher before aimock.
func startBeforeAimock(t *testing.T) (*usher, aimock) {
	t.Helper()
	mock := startAimock(t)
	u := startUsher(t, setup{
		usher: `provider aimock ` + mock.URL + ` {
			key k1 {env.E2E_KEY} {
				limit concurrency 10
			}
		}
		model gpt-4o aimock
		model text-embedding-3-small aimock
		caller alice {
			key {env.E2E_CALLER}
		}`,
		env: []string{"E2E_KEY=" + upstreamKey, "E2E_CALLER=" + callerKey},
	})
	return u, mock
}

// arrived checks what reached aimock of the requests of a tag: the bodies as
// they were sent, with the provider's key and without the caller's.
func (m aimock) arrived(t *testing.T, tag string, sent []string) {
	t.Helper()
	resp, err := http.Get(m.Wire + "/wire?tag=" + tag)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var records []wireRecord
	if err := json.NewDecoder(resp.Body).Decode(&records); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, r.BodySHA256)
		if r.Headers["authorization"] != "Bearer "+upstreamKey {
			t.Errorf("%s reached the provider with authorization %q", r.URL, r.Headers["authorization"])
		}
		for name, value := range r.Headers {
			if strings.Contains(value, callerKey) {
				t.Errorf("%s reached the provider with the caller's key in %s", r.URL, name)
			}
		}
	}
	if len(sent) == 0 || !slices.Equal(got, sent) {
		t.Errorf("bodies sent %v, arrived %v", sent, got)
	}
}

func TestTheOpenAIClientForNode(t *testing.T) {
	t.Parallel()
	need(t, nodeDir+"/node_modules/openai")
	u, mock := startBeforeAimock(t)
	cmd := node(t, "openai.mjs", "E2E_URL="+u.url, "E2E_KEY="+callerKey)
	stderr := new(output)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("openai.mjs: %v\n%s%s", err, out, stderr)
	}
	results := json.NewDecoder(bytes.NewReader(out))
	cases := 0
	for ; ; cases++ {
		var r struct {
			Name, Tag, Error string
			Sent             []string
		}
		if err := results.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if r.Error != "" {
			t.Errorf("%s: %s", r.Name, r.Error)
			continue
		}
		mock.arrived(t, r.Tag, r.Sent)
	}
	if cases != len(goCases) {
		t.Errorf("%d cases, want %d: %s", cases, len(goCases), out)
	}
}

// goCases are the same as those of openai.mjs.
var goCases = map[string]func(ctx context.Context, c openai.Client, tag string) error{
	"chat": func(ctx context.Context, c openai.Client, tag string) error {
		r, err := c.Chat.Completions.New(ctx, chatParams("Hello", tag))
		if err != nil {
			return err
		}
		return cmp.Or(equal("text", r.Choices[0].Message.Content, hello), equal("tokens", r.Usage.TotalTokens, 28))
	},
	"chat stream": func(ctx context.Context, c openai.Client, tag string) error {
		params := chatParams("Hello", tag)
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.Chat.Completions.NewStreaming(ctx, params)
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			return err
		}
		return cmp.Or(equal("text", all.Choices[0].Message.Content, hello), equal("tokens", all.Usage.TotalTokens, 28))
	},
	"tools": func(ctx context.Context, c openai.Client, tag string) error {
		params := chatParams("say:tools", tag)
		params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: "get_weather", Parameters: openai.FunctionParameters{
				"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}},
			},
		})}
		first, err := c.Chat.Completions.New(ctx, params)
		if err != nil {
			return err
		}
		message := first.Choices[0].Message
		if err := equal("tool calls", len(message.ToolCalls), 1); err != nil {
			return err
		}
		params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("21", message.ToolCalls[0].ID))
		second, err := c.Chat.Completions.New(ctx, params)
		if err != nil {
			return err
		}
		return equal("text", second.Choices[0].Message.Content, "It is 21 C in Paris.")
	},
	"embeddings": func(ctx context.Context, c openai.Client, tag string) error {
		r, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{
			Model: openai.EmbeddingModelTextEmbedding3Small,
			Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two #tag=" + tag}},
		})
		if err != nil {
			return err
		}
		return equal("vectors", len(r.Data), 2)
	},
	"responses": func(ctx context.Context, c openai.Client, tag string) error {
		r, err := c.Responses.New(ctx, responseParams(tag))
		if err != nil {
			return err
		}
		return equal("text", r.OutputText(), hello)
	},
	"responses stream": func(ctx context.Context, c openai.Client, tag string) error {
		stream := c.Responses.NewStreaming(ctx, responseParams(tag))
		text, last := "", ""
		for stream.Next() {
			event := stream.Current()
			if event.Type == "response.output_text.delta" {
				text += event.Delta
			}
			last = event.Type
		}
		if err := stream.Err(); err != nil {
			return err
		}
		return cmp.Or(equal("text", text, hello), equal("last event", last, "response.completed"))
	},
}

func chatParams(text, tag string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "gpt-4o",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text + " #tag=" + tag)},
	}
}

func responseParams(tag string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "gpt-4o",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello #tag=" + tag)},
	}
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func TestTheOpenAIClientForGo(t *testing.T) {
	t.Parallel()
	u, mock := startBeforeAimock(t)
	for name, run := range goCases {
		t.Run(name, func(t *testing.T) {
			tag := "go-" + rand.Text()
			var sent []string
			record := func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				sum := sha256.Sum256(body)
				sent = append(sent, hex.EncodeToString(sum[:]))
				r.Body = io.NopCloser(bytes.NewReader(body))
				return next(r)
			}
			c := openai.NewClient(option.WithBaseURL(u.url+"/v1/"), option.WithAPIKey(callerKey),
				option.WithMaxRetries(0), option.WithMiddleware(record))
			ctx, cancel := context.WithTimeout(t.Context(), longTime)
			defer cancel()
			if err := run(ctx, c, tag); err != nil {
				t.Fatal(err)
			}
			mock.arrived(t, tag, sent)
		})
	}
}
