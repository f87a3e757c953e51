package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// accessLog is Caddy's access log with the filter that docs/configuration.md
// asks for: Caddy itself hides Authorization and cookies only.
const accessLog = `log {
	format filter {
		request>headers>X-Api-Key delete
		request>headers>Api-Key delete
		request>headers>X-Goog-Api-Key delete
	}
}`

// Secrets are in no log, no matter its level, and nothing that the admin API
// or a command shows.
func TestSecretsAreShownNowhere_B93(t *testing.T) {
	t.Parallel()
	const (
		providerKey = "sk-canary-of-the-provider"
		refusedKey  = "sk-canary-that-is-refused"
		callerKey   = "sk-canary-of-the-caller"
		wrongKey    = "sk-canary-of-nobody"
	)
	p := startProvider(t, "key k1 "+providerKey)
	s := setup{
		global: "debug",
		site:   accessLog,
		usher: `provider openai ` + p.url + ` {
			key bad {env.E2E_REFUSED}
			key k1 {env.E2E_KEY} {
				priority 1
			}
		}
		model gpt-4o openai
		caller alice {
			key {env.E2E_CALLER}
		}`,
		env: []string{"E2E_KEY=" + providerKey, "E2E_REFUSED=" + refusedKey, "E2E_CALLER=" + callerKey},
	}
	u := startUsher(t, s)
	c := newClient(u.url)
	ask401 := func(header http.Header) {
		t.Helper()
		c.key = ""
		if a := c.chat(t.Context(), ask{header: header}); a.err != nil || a.status != http.StatusUnauthorized || strings.Contains(a.body, wrongKey) {
			t.Errorf("a wrong key got status %d, error %v: %s", a.status, a.err, a.body)
		}
	}
	for _, name := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		ask401(http.Header{name: {wrongKey}})
	}
	ask401(http.Header{"Authorization": {"Bearer " + wrongKey}})
	ask401(nil)
	for _, header := range []http.Header{
		{"Authorization": {"Bearer " + callerKey}}, {"X-Api-Key": {callerKey}}, {"Api-Key": {callerKey}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), longTime)
		if err := c.chat(ctx, ask{header: header}).ok(); err != nil {
			t.Errorf("the caller's key in %v: %v", header, err)
		}
		cancel()
	}

	adapted, err := u.command("adapt", "--config", u.caddyfile()).CombinedOutput()
	if err != nil {
		t.Errorf("usher adapt: %v\n%s", err, adapted)
	}
	for place, text := range map[string]string{
		"the log":     u.log.String(),
		"/config/":    u.adminGet(t, "/config/"),
		"/metrics":    u.adminGet(t, "/metrics"),
		"/usher/...":  u.adminGet(t, "/usher/decisions"),
		"usher adapt": string(adapted),
	} {
		for _, secret := range []string{providerKey, refusedKey, callerKey, wrongKey} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s shows a secret: …%s…", place, text[max(0, i-200):i+len(secret)])
			}
		}
	}
	if !strings.Contains(u.log.String(), "/v1/chat/completions") {
		t.Error("there is no access log: the test proves nothing")
	}
}
