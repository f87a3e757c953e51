package caddymodule_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/caddymodule"
)

// writeFile returns the {file.*} placeholder of a new file.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return "{file." + path + "}"
}

func TestResolveSecret(t *testing.T) {
	t.Setenv("USHER_TEST_KEY", "sk-env")
	t.Setenv("USHER_TEST_EMPTY", "")
	t.Setenv("USHER_TEST_BRACES", "{env.USHER_TEST_KEY}")
	t.Setenv("USHER_TEST_SPACE", "sk-env 2")
	tests := map[string]struct{ placeholder, want, wantErr string }{
		"environment":       {"{env.USHER_TEST_KEY}", "sk-env", ""},
		"file":              {writeFile(t, "sk-file"), "sk-file", ""},
		"file with newline": {writeFile(t, "sk-file\n"), "sk-file", ""},
		"file of Windows":   {writeFile(t, "sk-file\r\n\r\n"), "sk-file", ""},
		"not expanded":      {"{env.USHER_TEST_BRACES}", "{env.USHER_TEST_KEY}", ""},
		"empty variable":    {"{env.USHER_TEST_EMPTY}", "", "{env.USHER_TEST_EMPTY} is unset or empty; set the variable in the environment of this process"},
		"unset variable":    {"{env.USHER_TEST_UNSET}", "", "{env.USHER_TEST_UNSET} is unset or empty; set the variable in the environment of this process"},
		"missing file":      {"{file./nowhere/x}", "", "{file./nowhere/x} cannot be read or is empty"},
		"space":             {"{env.USHER_TEST_SPACE}", "", "{env.USHER_TEST_SPACE} contains a space or another character that no key has"},
		"literal":           {"sk-env", "", "the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}"},
		"other placeholder": {"{http.request.header.X}", "", "the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := caddymodule.ResolveSecret(caddy.NewReplacer(), test.placeholder)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if got != test.want || gotErr != test.wantErr {
				t.Errorf("got %q, %q; want %q, %q", got, gotErr, test.want, test.wantErr)
			}
			if strings.Contains(gotErr, "sk-env") {
				t.Errorf("the error shows the secret: %s", gotErr)
			}
		})
	}
}

func TestSecretsNamesEachKeyThatHasNone(t *testing.T) {
	t.Setenv("USHER_TEST_KEY", "sk-env")
	c := parse(t, `{
		"providers": [{"name": "p", "keys": [
			{"name": "good", "secret": "{env.USHER_TEST_KEY}"},
			{"name": "open", "secret": "none"},
			{"name": "off", "secret": "{env.USHER_TEST_UNSET}", "disabled": true}
		]}]
	}`)
	secrets, err := c.Secrets(caddy.NewReplacer())
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"p/good": "sk-env", "p/open": "", "p/off": ""} {
		if got, ok := secrets[key]; !ok || got != want {
			t.Errorf("the secret of %s is %q, want %q", key, got, want)
		}
	}

	c = parse(t, `{
		"providers": [
			{"name": "p", "keys": [{"name": "a", "secret": "{env.USHER_TEST_UNSET}"}]},
			{"name": "q", "keys": [{"name": "b", "secret": "{file./nowhere}"}]}
		],
		"source": {"/providers/0/keys/0": "Caddyfile:4", "/providers/1": "Caddyfile:8"}
	}`)
	want := "Caddyfile:4: provider p: key a: {env.USHER_TEST_UNSET} is unset or empty; set the variable in the environment of this process\n" +
		"Caddyfile:8: provider q: key b: {file./nowhere} cannot be read or is empty"
	if _, err := c.Secrets(caddy.NewReplacer()); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestPolicyOptionsReplacePlaceholders(t *testing.T) {
	t.Setenv("USHER_TEST_DSN", `postgres://u:"p"@h/db`)
	u := caddymodule.PolicyUse{ConfigRaw: []byte(
		`{"dsn": "{env.USHER_TEST_DSN}?x={env.USHER_TEST_DSN}", "n": 12345678901234567890, "keep": "{http.request.id} {}", "list": ["{env.USHER_TEST_DSN}", true, {"a": null}]}`,
	)}
	got, err := u.Options(caddy.NewReplacer())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"dsn":"postgres://u:\"p\"@h/db?x=postgres://u:\"p\"@h/db","keep":"{http.request.id} {}","list":["postgres://u:\"p\"@h/db",true,{"a":null}],"n":12345678901234567890}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	u = caddymodule.PolicyUse{}
	if got, err := u.Options(caddy.NewReplacer()); err != nil || string(got) != "{}" {
		t.Errorf("no options became %s, %v", got, err)
	}

	u.ConfigRaw = []byte(`{"a": ["{env.USHER_TEST_UNSET}"]}`)
	if _, err := u.Options(caddy.NewReplacer()); err == nil || !strings.Contains(err.Error(), "{env.USHER_TEST_UNSET} is unset or empty") {
		t.Errorf("an unset variable gave %v", err)
	}
}

func TestPluginEnvironmentHoldsWhatIsListed(t *testing.T) {
	t.Setenv("USHER_TEST_KEY", "x")
	p := caddymodule.Plugin{Env: map[string]string{"B": "b {env.USHER_TEST_KEY}", "A": "a"}}
	got, err := p.Environ(caddy.NewReplacer())
	if want := []string{"A=a", "B=b x"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	p.Env["C"] = "{env.USHER_TEST_UNSET}"
	if _, err := p.Environ(caddy.NewReplacer()); err == nil || !strings.HasPrefix(err.Error(), "env C: {env.USHER_TEST_UNSET}") {
		t.Errorf("an unset variable gave %v", err)
	}
}
