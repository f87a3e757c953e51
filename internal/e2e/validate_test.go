package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// here marks the line of a Caddyfile that an error must name.
const here = "# HERE"

// brokenCaddyfiles are mistakes that operators make, and the words with which
// Usher must tell them what to do.
var brokenCaddyfiles = map[string]struct {
	global, usher string
	want          []string
}{
	"B93 a secret in the file": {usher: `
		provider openai https://api.openai.com {
			key k1 sk-literal # HERE
		}
		model gpt-4o openai`, want: []string{"{env.", "{file."}},
	"a variable that is not set": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_NOT_SET} # HERE
		}
		model gpt-4o openai`, want: []string{"E2E_NOT_SET", "set the variable"}},
	"a misspelt option": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY} {
				wieght 2 # HERE
			}
		}
		model gpt-4o openai`, want: []string{`"wieght"`, `"weight"`}},
	"a misspelt option of a policy": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai
		admit fifo {
			queue_limit 10
			max_wiat 60s # HERE
		}`, want: []string{"max_wiat", "max_wait"}},
	"a wrong value in a policy": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai
		admit fifo {
			max_wait soon # HERE
		}`, want: []string{"max_wait", "soon"}},
	"a limit without a number": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
			limit concurrency many # HERE
		}
		model gpt-4o openai`, want: []string{`"many"`, "number"}},
	"a rate without a window": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
			limit requests 60 # HERE
		}
		model gpt-4o openai`, want: []string{"limit requests", "window"}},
	"a model of an unknown provider": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o opnai # HERE`, want: []string{`"opnai"`, `"openai"`}},
	"a URL without a scheme": {usher: `
		provider openai api.openai.com { # HERE
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai`, want: []string{"https://"}},
	"a policy that nobody has": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai
		select fairness # HERE`, want: []string{`fairness`, "no such policy", "plugin"}},
	"a key twice": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
			key k1 {env.E2E_KEY} # HERE
		}
		model gpt-4o openai`, want: []string{"k1", "rename or remove"}},
	"a hash that is none": {usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai
		caller alice {
			key_sha256 abc # HERE
		}`, want: []string{"64", "sha256sum"}},
	"a plugin that is not there": {global: `usher {
			plugin fair /nowhere/fair # HERE
		}`, usher: `
		provider openai https://api.openai.com {
			key k1 {env.E2E_KEY}
		}
		model gpt-4o openai
		select fair`, want: []string{"/nowhere/fair", "no such file"}},
}

func TestValidateNamesTheLineAndTheRemedy(t *testing.T) {
	t.Parallel()
	for name, test := range brokenCaddyfiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustNotValidate(t, setup{global: test.global, usher: test.usher, env: []string{"E2E_KEY=sk-e2e"}}, test.want...)
		})
	}
}

// mustNotValidate runs "usher validate", which must fail, name the line that
// is marked, and say the words.
func mustNotValidate(t *testing.T, s setup, words ...string) {
	t.Helper()
	u := newUsher(t, s)
	b, err := os.ReadFile(u.caddyfile())
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + slices.IndexFunc(strings.Split(string(b), "\n"), func(l string) bool { return strings.Contains(l, here) })
	out, err := u.command("validate", "--config", u.caddyfile()).CombinedOutput()
	if err == nil {
		t.Errorf("the configuration is valid\n%s", out)
	}
	if !regexp.MustCompile(fmt.Sprintf(`Caddyfile:%d\b`, line)).Match(out) {
		t.Errorf("the line %d is not named in\n%s", line, out)
	}
	for _, word := range words {
		// The log of a command is JSON, in which quotes are escaped.
		if !strings.Contains(strings.ReplaceAll(string(out), `\"`, `"`), word) {
			t.Errorf("%s is not said in\n%s", word, out)
		}
	}
}

// brokenPlugins are programs that are no plugins, as shell scripts.
var brokenPlugins = map[string]struct {
	script string
	want   []string
}{
	"prints":            {"echo Hello, I am a policy.\nexec /bin/sleep 100", []string{"Hello, I am a policy.", "standard output", "standard error"}},
	"exits":             {"echo out of luck >&2\nexit 3", []string{"status 3", "out of luck"}},
	"never answers":     {"exec /bin/sleep 100", []string{"start_timeout", "2s"}},
	"speaks another":    {"echo '1|99|unix|/nowhere|grpc|'\nexec /bin/sleep 100", []string{"version"}},
	"speaks gibberish":  {"echo '1|1|unix|/nowhere|grpc|'\nexec /bin/sleep 100", []string{"start plugin"}},
	"is no executable":  {"", []string{"permission denied"}},
	"ends with a crash": {"kill -9 $$", []string{"killed"}},
}

func TestValidateTellsWhatIsWrongWithAPlugin(t *testing.T) {
	t.Parallel()
	for name, test := range brokenPlugins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, mode := filepath.Join(t.TempDir(), "policy"), os.FileMode(0o700)
			if test.script == "" {
				mode = 0o600
			}
			// A child that is forked meanwhile would hold the file open for a moment,
			// and what is open for writing cannot be executed.
			syscall.ForkLock.RLock()
			err := os.WriteFile(path, []byte("#!/bin/sh\n"+test.script+"\n"), mode)
			syscall.ForkLock.RUnlock()
			if err != nil {
				t.Fatal(err)
			}
			within := longTime
			if name == "never answers" {
				within = 2 * time.Second
			}
			mustNotValidate(t, setup{
				global: "usher {\nplugin broken " + path + " { # HERE\nstart_timeout " + within.String() + "\n}\n}",
				usher:  "provider openai https://api.openai.com {\nkey k1 {env.E2E_KEY}\n}\nmodel gpt-4o openai\nselect broken",
				env:    []string{"E2E_KEY=sk-e2e"},
			}, append(test.want, "plugin broken")...)
		})
	}
}

// The options of a policy are checked by its plugin, and the plugin's words
// come with the line.
func TestValidateTellsWhatAPolicySaysOfItsOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		block string
		want  []string
	}{
		"unknown option": {"select residency {\nregion eu\nregoin us # HERE\n}", []string{"regoin"}},
		"wrong option":   {"select residency { # HERE\n}", []string{"name the region to stay in"}},
		"wrong kind":     {"select residency {\nregion 7 # HERE\n}", []string{"region"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustNotValidate(t, setup{
				global: "usher {\nplugin residency " + residency(t) + "\n}",
				usher:  "provider openai https://api.openai.com {\nkey k1 {env.E2E_KEY}\n}\nmodel gpt-4o openai\n" + test.block,
				env:    []string{"E2E_KEY=sk-e2e"},
			}, test.want...)
		})
	}
}

func TestValidateAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	u := newUsher(t, setup{
		global: "usher {\nplugin residency " + residency(t) + "\n}",
		usher:  "provider openai https://api.openai.com {\nkey k1 {env.E2E_KEY}\n}\nmodel gpt-4o openai\nselect keys\nselect residency {\nregion eu\n}",
		env:    []string{"E2E_KEY=sk-e2e"},
	})
	if out, err := u.command("validate", "--config", u.caddyfile()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
