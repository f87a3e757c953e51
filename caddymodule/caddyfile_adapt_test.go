package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/usherproxy/usher/caddymodule"
)

var update = flag.Bool("update", false, "write the expected part of testdata/caddyfile_adapt")

const adaptSeparator = "----------\n"

// TestCaddyfileAdapt compares each Caddyfile of testdata/caddyfile_adapt with
// what stands below its line of dashes: the JSON that it becomes, or all errors
// of adapting or, if that succeeds, of checking it.
func TestCaddyfileAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/caddyfile_adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(data), adaptSeparator)
			got := adaptAndCheck(t, input)
			if *update {
				if err := os.WriteFile(file, []byte(input+adaptSeparator+got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != want && !*update {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// adaptAndCheck returns the indented JSON of the Caddyfile, or its errors.
func adaptAndCheck(t *testing.T, input string) string {
	t.Helper()
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), nil)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, w := range warnings {
		t.Errorf("unexpected warning: %s", w)
	}
	if err := checkAdapted(t, adapted); err != nil {
		return err.Error() + "\n"
	}
	var out bytes.Buffer
	if err := json.Indent(&out, adapted, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// checkAdapted decodes the app and the handlers as strictly as Caddy does, and
// returns the first that does not pass its check.
func checkAdapted(t *testing.T, adapted []byte) error {
	t.Helper()
	var config struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	var app caddymodule.AppConfig
	if raw := config.Apps["usher"]; raw != nil {
		if err := caddy.StrictUnmarshalJSON(raw, &app); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Check(); err != nil {
		return err
	}
	var http any
	if raw := config.Apps["http"]; raw != nil {
		if err := json.Unmarshal(raw, &http); err != nil {
			t.Fatal(err)
		}
	}
	for _, handler := range handlers(http) {
		if err := decode(t, handler).Check(app.Policies()...); err != nil {
			return err
		}
	}
	return nil
}

// handlers returns the usher handlers that are somewhere in v.
func handlers(v any) []map[string]any {
	var found []map[string]any
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			found = append(found, handlers(e)...)
		}
	case map[string]any:
		if v["handler"] == "usher" {
			return []map[string]any{v}
		}
		for _, e := range v {
			found = append(found, handlers(e)...)
		}
	}
	return found
}

func decode(t *testing.T, handler map[string]any) *caddymodule.Config {
	t.Helper()
	delete(handler, "handler")
	raw, err := json.Marshal(handler)
	if err != nil {
		t.Fatal(err)
	}
	var c caddymodule.Config
	if err := caddy.StrictUnmarshalJSON(raw, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}
