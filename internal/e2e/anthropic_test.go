package e2e_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

// anthropicCases are some of those of anthropic.mjs.
var anthropicCases = map[string]func(ctx context.Context, c anthropic.Client, tag string) error{
	"messages": func(ctx context.Context, c anthropic.Client, tag string) error {
		m, err := c.Messages.New(ctx, messageParams("Hello", tag))
		if err != nil {
			return err
		}
		return cmp.Or(equal("text", m.Content[0].Text, hello), equal("tokens", m.Usage.OutputTokens, 17))
	},
	"stream": func(ctx context.Context, c anthropic.Client, tag string) error {
		stream := c.Messages.NewStreaming(ctx, messageParams("Hello", tag))
		var m anthropic.Message
		for stream.Next() {
			if err := m.Accumulate(stream.Current()); err != nil {
				return err
			}
		}
		return cmp.Or(stream.Err(), equal("text", m.Content[0].Text, hello))
	},
	"count tokens": func(ctx context.Context, c anthropic.Client, tag string) error {
		n, err := c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "claude", Messages: messageParams("one", tag).Messages})
		if err != nil {
			return err
		}
		return equal("some tokens", n.InputTokens > 0, true)
	},
	"abort": func(ctx context.Context, c anthropic.Client, tag string) error {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		stream, events := c.Messages.NewStreaming(ctx, messageParams("say:long", tag)), 0
		for stream.Next() {
			if events++; events == 5 {
				leave()
			}
		}
		if !errors.Is(stream.Err(), context.Canceled) {
			return fmt.Errorf("after %d events: %w", events, stream.Err())
		}
		return nil
	},
	"a fault of the caller": func(ctx context.Context, c anthropic.Client, tag string) error {
		_, err := c.Messages.New(ctx, messageParams("say:400", tag))
		var fault *anthropic.Error
		if !errors.As(err, &fault) {
			return err
		}
		return equal("status", fault.StatusCode, http.StatusBadRequest)
	},
}

func messageParams(text, tag string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude", MaxTokens: 256,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text + " #tag=" + tag))},
	}
}

func TestTheAnthropicClientForGo(t *testing.T) {
	t.Parallel()
	u, mock := startBeforeAimock(t)
	for name, run := range anthropicCases {
		t.Run(name, func(t *testing.T) {
			tag := "go-" + rand.Text()
			c := anthropic.NewClient(option.WithBaseURL(u.url), option.WithAPIKey(callerKey), option.WithMaxRetries(0))
			ctx, cancel := context.WithTimeout(t.Context(), longTime)
			defer cancel()
			if err := run(ctx, c, tag); err != nil {
				t.Fatal(err)
			}
			mock.arrived(t, clientResult{Tag: tag, Sent: []string{""}, Aborts: name == "abort"})
		})
	}
}
