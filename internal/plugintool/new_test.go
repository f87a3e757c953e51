package plugintool_test

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/plugintool"
)

func TestAModuleIsWrittenWhole(t *testing.T) {
	t.Parallel()
	for _, kind := range plugintool.Kinds {
		dir := filepath.Join(t.TempDir(), "new")
		if err := (plugintool.Module{Name: "my-policy", Kind: kind, Version: "v1.2.3"}).Write(dir); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{
			"main.go": `sdk.Serve("my-policy"`, "main_test.go": "policytest.TestDefinition", "go.mod": "require github.com/usherproxy/usher v1.2.3",
			"README.md": "# my-policy", "Caddyfile": "plugin my-policy ./my-policy", ".gitignore": "/my-policy",
		} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "{{") {
				t.Errorf("%s of %s: %v, want %q in it:\n%s", file, kind, err, want, text)
			}
			if formatted, err := format.Source(text); strings.HasSuffix(file, ".go") && (err != nil || string(formatted) != string(text)) {
				t.Errorf("%s of %s is not formatted: %v", file, kind, err)
			}
		}
		if err := (plugintool.Module{Name: "my-policy", Kind: kind}).Write(dir); err == nil || !strings.Contains(err.Error(), "is not empty") {
			t.Errorf("written over another module: %v", err)
		}
	}
}

func TestAModuleThatCannotBeIsNotWritten(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]plugintool.Module{
		`"keys" cannot be the name`:         {Name: "keys", Kind: "selection"},
		`"My Policy" cannot be the name`:    {Name: "My Policy", Kind: "selection"},
		`no such kind "observer"`:           {Name: "fair", Kind: "observer"},
		"there are: admission, selection":   {Name: "fair"},
		`"../up" cannot be the name of a p`: {Name: "../up", Kind: "admission"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		if err := m.Write(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", m, err, want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%+v: the directory was made", m)
		}
	}
}
