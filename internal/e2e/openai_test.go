package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// goCases are some of those of openai.mjs.
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
	"an edit of images": func(ctx context.Context, c openai.Client, tag string) error {
		picture := func() io.Reader { return openai.File(strings.NewReader("no real picture"), "in.png", "image/png") }
		r, err := c.Images.Edit(ctx, openai.ImageEditParams{
			Model: "gpt-image-1", Prompt: "join #tag=" + tag,
			Image: openai.ImageEditParamsImageUnion{OfFileArray: []io.Reader{picture(), picture()}},
		})
		if err != nil {
			return err
		}
		return equal("pictures", len(r.Data), 1)
	},
	"transcription": func(ctx context.Context, c openai.Client, tag string) error {
		r, err := c.Audio.Transcriptions.New(ctx, openai.AudioTranscriptionNewParams{
			Model: "whisper-1", Prompt: openai.String("#tag=" + tag),
			File: openai.File(strings.NewReader("RIFF"), "a.wav", "audio/wav"),
		})
		if err != nil {
			return err
		}
		return equal("text", r.Text, "the words of the upstream")
	},
	"abort": func(ctx context.Context, c openai.Client, tag string) error {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		params := chatParams("say:long", tag)
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream, chunks := c.Chat.Completions.NewStreaming(ctx, params), 0
		for stream.Next() {
			if chunks++; chunks == 3 {
				leave()
			}
		}
		if !errors.Is(stream.Err(), context.Canceled) {
			return fmt.Errorf("after %d chunks: %w", chunks, stream.Err())
		}
		return nil
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
			mock.arrived(t, clientResult{Tag: tag, Sent: sent, Aborts: name == "abort"})
		})
	}
}
