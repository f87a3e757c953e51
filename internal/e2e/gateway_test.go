package e2e_test

import (
	"strings"
	"testing"
)

// startGateway runs Usher before aimock with models that want scheduling:
// "narrow" serves one request at a time, "window" has a small one and a larger
// one, "fallen" falls back, and "once-X" refuses the first request.
func startGateway(t *testing.T) (*usher, aimock) {
	t.Helper()
	mock := startAimock(t)
	var block strings.Builder
	for _, format := range []string{"openai", "anthropic", "gemini"} {
		for _, name := range []string{format, "sick-" + format} {
			block.WriteString("provider " + name + " " + mock.URL + " {\nformat " + format + "\nkey k1 {env.E2E_KEY}\n}\n")
		}
	}
	serveAll := func(model, options string) string {
		return "serve openai " + model + options + "\nserve anthropic " + model + options + "\nserve gemini " + model + options + "\n"
	}
	block.WriteString("model narrow {\nlimit concurrency 1\n" + serveAll("gpt-4o", "") + "}\n" +
		"model window {\n" + serveAll("small", " {\ncontext 100\n}") + serveAll("gpt-4o", " {\ncontext 1000\n}") + "}\n" +
		"model fallen {\n" + strings.ReplaceAll(serveAll("broken", ""), "serve ", "serve sick-") + "fallback gpt-4o\n}\n" +
		"model gpt-4o {\n" + serveAll("gpt-4o", "") + "}\n" +
		"model once-openai openai\nmodel once-go openai\nmodel once-anthropic anthropic\nmodel once-anthropic-go anthropic\n" +
		"heartbeat 40ms\nadmit fifo {\nmax_wait 60s\n}\nselect keys {\norder priority\nbreaker {\nfailures 0\n}\n}\n")
	return startUsher(t, setup{usher: block.String(), env: []string{"E2E_KEY=" + upstreamKey}}), mock
}

// Clients that were not written here do not notice that they wait, that there
// are heartbeats, and that somebody else answers.
func TestClientsDoNotNoticeTheScheduler(t *testing.T) {
	t.Parallel()
	u, mock := startGateway(t)
	beats := newClient(u.url).chat(t.Context(), ask{tag: "beats", model: "narrow", text: "say:slow"})
	if err := beats.ok(); err != nil || strings.Count(beats.body, ": heartbeat") < 2 {
		t.Errorf("want heartbeats: %v in %s", err, beats.body)
	}
	runCases(t, u, "gateway.mjs", 5*2*3+2, func(t *testing.T, r clientResult) {
		if got := len(mock.wire(t, r.Tag)); got < 2 {
			t.Errorf("%d requests reached the provider", got)
		}
	})
}

// Azure's paths and header, at providers of either kind.
func TestAzuresClientForNode(t *testing.T) {
	t.Parallel()
	mock := startAimock(t)
	provider := func(name, options string) string {
		return "provider " + name + " " + mock.URL + " {\n" + options + "\nkey k1 {env.E2E_KEY}\n}\n"
	}
	u := startUsher(t, setup{
		usher: provider("openai", "") + provider("azure", "api_version 2024-10-21") + `
		model gpt-4o openai
		model text-embedding-3-small openai
		model whisper-1 openai
		model azure-gpt azure gpt-4o
		model azure-embeddings azure text-embedding-3-small
		model azure-whisper azure whisper-1
		caller alice {
			key {env.E2E_CALLER}
		}`,
		env: []string{"E2E_KEY=" + upstreamKey, "E2E_CALLER=" + callerKey},
	})
	runCases(t, u, "azure.mjs", 11, func(t *testing.T, r clientResult) {
		if r.Name == "an unknown deployment" {
			return
		}
		azure := strings.HasSuffix(r.Name, "at Azure")
		r.Rewritten = azure
		mock.arrived(t, r)
		for _, got := range mock.wire(t, r.Tag) {
			if is := strings.HasPrefix(got.URL, "/openai/") && strings.Contains(got.URL, "api-version=2025-04-01-preview"); is != azure {
				t.Errorf("%s reached %s", r.Name, got.URL)
			}
		}
	})
}
