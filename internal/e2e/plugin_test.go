package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// buildResidency builds the policy residency once.
var buildResidency = sync.OnceValues(func() (string, error) { return buildAuthored("residency") })

// buildAuthored builds a policy of testdata in a module of its own, as its
// author would.
func buildAuthored(name string) (string, error) {
	path := filepath.Join(buildDir, name)
	module := filepath.Join(buildDir, name+"-module")
	repo, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(module, os.DirFS("testdata/"+name)); err != nil {
		return "", err
	}
	gomod := "module example.com/" + name + "\n\ngo 1.26.0\n\n" +
		"require github.com/usherproxy/usher v0.0.0\n\nreplace github.com/usherproxy/usher => " + repo + "\n"
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(gomod), 0o600); err != nil {
		return "", err
	}
	gosum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(module, "go.sum"), gosum, 0o600); err != nil {
		return "", err
	}
	return path, goBuild(module, path, "-mod=mod", ".")
}

func residency(t *testing.T) string {
	t.Helper()
	path, err := buildResidency()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// regions is a Caddyfile block of a provider with a key in each of two regions.
func regions(p *provider) string {
	return `provider openai ` + p.url + ` {
		key k1 {env.E2E_KEY_1} {
			label region us
		}
		key k2 {env.E2E_KEY_2} {
			label region eu
			priority 1
		}
	}
	model gpt-4o openai
	`
}

func TestAPolicyOfSomebodyElseDecides(t *testing.T) {
	t.Parallel()
	p := startProvider(t, "key k1 sk-e2e-one\nkey k2 sk-e2e-two")
	global := "usher {\nplugin residency " + residency(t) + "\n}"
	for region, key := range map[string]string{"eu": "k2", "us": "k1"} {
		t.Run(region, func(t *testing.T) {
			t.Parallel()
			u := startUsher(t, setup{
				global: global,
				usher:  regions(p) + "select keys\nselect residency {\nregion " + region + "\n}",
				env:    keyEnv,
			})
			c := newClient(u.url)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), longTime)
				a := c.chat(ctx, ask{whole: true})
				cancel()
				if err := a.ok(); err != nil || !strings.Contains(a.body, "key="+key+" ") {
					t.Errorf("error %v, want an answer with key %s: %s", err, key, a.body)
				}
			}
		})
	}
	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		u := startUsher(t, setup{global: global, usher: regions(p) + "select keys\nselect residency {\nregion mars\n}", env: keyEnv})
		ctx, cancel := context.WithTimeout(t.Context(), longTime)
		defer cancel()
		a := newClient(u.url).chat(ctx, ask{})
		if a.status != 503 || !strings.Contains(a.body, "error") {
			t.Errorf("no candidate is left: error %v, status %d, want 503: %s", a.err, a.status, a.body)
		}
		if decisions := u.adminGet(t, "/usher/decisions"); !regexp.MustCompile(`"detail":\s*"region"`).MatchString(decisions) {
			t.Errorf("the decision does not tell the policy's rule: %s", decisions)
		}
	})
}

// A plugin that dies as it is asked must not take a request with it.
func TestAPolicyOfSomebodyElseMayCrash(t *testing.T) {
	t.Parallel()
	p := startProvider(t, "key k1 sk-e2e-one\nkey k2 sk-e2e-two\nlatency 20ms")
	u := startUsher(t, setup{
		global: "usher {\nplugin residency " + residency(t) + "\n}",
		usher:  regions(p) + "select keys\nselect residency {\nregion eu\n}",
		env:    keyEnv,
	})
	l := startLoad(t, newClient(u.url), 8)
	p.running(t, longTime, 8)
	old := u.plugins()
	if len(old) != 2 {
		t.Errorf("%d processes of policies, want one of Usher's own and one of somebody else's", len(old))
	}
	for _, process := range old {
		process.kill(t)
	}
	allGone(t, longTime, old...)
	eventually(t, longTime, func() error {
		if got := len(u.plugins()); got != len(old) {
			return fmt.Errorf("%d processes", got)
		}
		return nil
	})
	l.end(t)
	if n := p.stats(t).Keys["k1"].Requests; n != 0 {
		t.Errorf("%d requests left the region", n)
	}
}
