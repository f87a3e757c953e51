package e2e_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/realtime"
	"github.com/openai/openai-go/v3/responses"
)

// said is what two turns of a session come to: their text and their last event.
func said(t *testing.T, send func(json.RawMessage) error, receive func() (json.RawMessage, error), last string, turns ...string) string {
	t.Helper()
	var text strings.Builder
	for _, turn := range turns {
		for message := range strings.SplitSeq(turn, "\n") {
			if err := send(json.RawMessage(message)); err != nil {
				t.Fatal(err)
			}
		}
		for {
			raw, err := receive()
			if err != nil {
				t.Fatal(err)
			}
			var event struct{ Type, Delta string }
			if err := json.Unmarshal(raw, &event); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(event.Type, "text.delta") {
				text.WriteString(event.Delta)
			}
			if event.Type == "error" {
				t.Fatalf("%s", raw)
			}
			if event.Type == last {
				break
			}
		}
	}
	return text.String()
}

// The sessions of OpenAI's SDK for Go, over WebSocket.
func TestSessionsOfTheOpenAIClientForGo(t *testing.T) {
	t.Parallel()
	u, _ := startBeforeAimock(t)
	c := openai.NewClient(option.WithBaseURL(u.url+"/v1/"), option.WithAPIKey(callerKey), option.WithMaxRetries(0))
	ctx := t.Context()

	live, err := c.Realtime.Connect(ctx, realtime.RealtimeConnectionOptions{}, option.WithQuery("model", "gpt-4o"))
	if err != nil {
		t.Fatal(err)
	}
	turn := `{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}}` + "\n" + `{"type":"response.create"}`
	got := said(t, func(m json.RawMessage) error { return live.SendRaw(ctx, m) },
		func() (json.RawMessage, error) { return live.RecvRaw(ctx) }, "response.done", turn, turn)
	if err := equal("text", got, hello+hello); err != nil {
		t.Error(err)
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}

	conn, err := c.Responses.Connect(ctx, responses.ResponseConnectionOptions{}, option.WithQuery("model", "gpt-4o"))
	if err != nil {
		t.Fatal(err)
	}
	turn = `{"type":"response.create","model":"gpt-4o","input":[{"role":"user","content":"Hello"}]}`
	got = said(t, func(m json.RawMessage) error { return conn.SendRaw(ctx, m) },
		func() (json.RawMessage, error) { return conn.RecvRaw(ctx) }, "response.completed", turn, turn)
	if err := equal("text", got, hello+hello); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for _, operation := range []string{"realtime", "chat"} {
		eventually(t, longTime, func() error { return u.endedWell(t, operation) })
	}
}

// endedWell returns an error unless a request of the operation has ended well.
func (u *usher) endedWell(t *testing.T, operation string) error {
	t.Helper()
	var decisions []struct{ Operation, Disposition string }
	text := u.adminGet(t, "/usher/decisions")
	if err := json.Unmarshal([]byte(text), &decisions); err != nil {
		return err
	}
	for _, d := range decisions {
		if d.Operation == operation {
			return equal("disposition", d.Disposition, "ok")
		}
	}
	return fmt.Errorf("no %s has ended: %s", operation, text)
}

// OpenAI's SDK for Node opens sessions by TLS only, with its key among the
// subprotocols, where no header can be set.
func TestSessionOfTheOpenAIClientForNode(t *testing.T) {
	t.Parallel()
	mock := startAimock(t)
	u := startUsher(t, setup{
		tls:   true,
		usher: "provider aimock " + mock.URL + " {\nkey k1 {env.E2E_KEY}\n}\nmodel gpt-4o aimock\ncaller alice {\nkey {env.E2E_CALLER}\n}\n",
		env:   []string{"E2E_KEY=" + upstreamKey, "E2E_CALLER=" + callerKey},
	})
	ca := filepath.Join(u.dir, "caddy/pki/authorities/local/root.crt")
	runCases(t, u, "realtime.mjs", 1, func(t *testing.T, _ clientResult) {
		eventually(t, longTime, func() error { return u.endedWell(t, "realtime") })
	}, "NODE_EXTRA_CA_CERTS="+ca)
}
