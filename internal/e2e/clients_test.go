package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	hello       = "Hello from the upstream."
	callerKey   = "sk-e2e-caller"
	upstreamKey = "sk-e2e-upstream"
)

// startBeforeAimock runs Usher before aimock, which speaks all formats.
func startBeforeAimock(t *testing.T) (*usher, aimock) {
	t.Helper()
	mock := startAimock(t)
	provider := func(name, options string) string {
		return "provider " + name + " " + mock.URL + " {\n" + options + "\nkey k1 {env.E2E_KEY} {\nlimit concurrency 10\n}\n}\n"
	}
	u := startUsher(t, setup{
		usher: provider("aimock", "stream_usage") + provider("limited", "") +
			provider("anthropic", "format anthropic") + provider("gemini", "format gemini") + `
		model gpt-4o aimock
		model text-embedding-3-small aimock
		model omni-moderation aimock
		model gpt-image-1 aimock
		model tts-1 aimock
		model whisper-1 aimock
		model dictation aimock whisper-1
		model limited limited
		model claude anthropic
		model gemini gemini
		files aimock
		caller alice {
			key {env.E2E_CALLER}
		}`,
		env: []string{"E2E_KEY=" + upstreamKey, "E2E_CALLER=" + callerKey},
	})
	return u, mock
}

// A clientResult is what a program of nodeDir says of a case: see cases.mjs.
type clientResult struct {
	Name, Tag, Error string
	Sent             []string
	Rewritten        bool
	Aborts           bool
}

// wire returns what reached aimock of the requests of a tag.
func (m aimock) wire(t *testing.T, tag string) []wireRecord {
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
	return records
}

// arrived checks what reached aimock of a case: as many bodies as were sent, and
// the same ones as far as that is known, with the provider's key and without the
// caller's. The end of an answer that was aborted must have reached it, too.
func (m aimock) arrived(t *testing.T, r clientResult) {
	t.Helper()
	records := m.wire(t, r.Tag)
	if len(records) != len(r.Sent) {
		t.Errorf("%d bodies were sent, %d arrived", len(r.Sent), len(records))
		return
	}
	for i, got := range records {
		if want := r.Sent[i]; want != "" && (want == got.BodySHA256) == r.Rewritten {
			t.Errorf("%s: the body %d is what was sent: %v", got.URL, i, want == got.BodySHA256)
		}
		shown := []string{
			got.Headers["authorization"], "Bearer " + got.Headers["x-api-key"],
			"Bearer " + got.Headers["x-goog-api-key"], "Bearer " + got.Headers["api-key"],
		}
		if strings.Count(strings.Join(shown, " ")+" ", upstreamKey+" ") != 1 {
			t.Errorf("%s reached the provider with the keys %q", got.URL, shown)
		}
		for name, value := range got.Headers {
			if strings.Contains(value, callerKey) {
				t.Errorf("%s reached the provider with the caller's key in %s", got.URL, name)
			}
		}
		if strings.Contains(got.URL, callerKey) {
			t.Errorf("%s has the caller's key", got.URL)
		}
	}
	if r.Aborts {
		m.wasLeft(t, r.Tag)
	}
}

// wasLeft checks that the last request of a tag ended before its answer did.
func (m aimock) wasLeft(t *testing.T, tag string) {
	t.Helper()
	eventually(t, longTime, func() error {
		records := m.wire(t, tag)
		if last := records[len(records)-1]; !last.Done {
			return fmt.Errorf("%s goes on", last.URL)
		} else if last.Finished {
			t.Errorf("%s was answered to its end", last.URL)
		}
		return nil
	})
}

// Clients that were not written here and know nothing of Usher.
func TestClientsForNode(t *testing.T) {
	t.Parallel()
	u, mock := startBeforeAimock(t)
	for program, want := range map[string]int{"openai.mjs": 16, "anthropic.mjs": 7, "gemini.mjs": 8, "vercel.mjs": 10} {
		t.Run(program, func(t *testing.T) {
			runCases(t, u, program, want, func(t *testing.T, r clientResult) {
				if r.Name != "an unknown model" { // which nobody is asked for
					mock.arrived(t, r)
				}
			})
		})
	}
}

// runCases runs a program of nodeDir, which has so many cases, and checks those
// that went well.
func runCases(t *testing.T, u *usher, program string, want int, check func(*testing.T, clientResult), env ...string) {
	t.Helper()
	cmd := node(t, program, append(env, "E2E_URL="+u.url, "E2E_KEY="+callerKey)...)
	stderr := new(output)
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr)
	}
	results := json.NewDecoder(bytes.NewReader(out))
	cases := 0
	for ; ; cases++ {
		var r clientResult
		if err := results.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		t.Run(r.Name, func(t *testing.T) {
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			check(t, r)
		})
	}
	if cases != want {
		t.Errorf("%d cases, want %d: %s", cases, want, out)
	}
}
