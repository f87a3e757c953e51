package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestANewPluginBuildsAndPasses(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"admission", "selection"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a := newAuthor(t)
			a.do(t, "usher plugin new my-"+kind+" --kind "+kind+" --dir module")
			a.dir = filepath.Join(a.dir, "module")
			a.do(t, `go mod tidy && test -z "$(gofmt -l .)" && go vet ./... && go test ./... && go build -o my-`+kind+` .`)
			report := a.do(t, "usher plugin test ./my-"+kind+" --calls 20")
			if !strings.Contains(report, "\nPASS: ") || !strings.Contains(report, "p99") || !strings.Contains(report, ": "+kind) {
				t.Errorf("the report does not tell that it passed, or how long calls take:\n%s", report)
			}
			option := map[string]string{"admission": "max     4", "selection": "region  eu"}[kind]
			if info := a.do(t, "usher plugin info ./my-"+kind); !strings.Contains(info, option) {
				t.Errorf("info does not show %q:\n%s", option, info)
			}
			a.do(t, "usher validate --config Caddyfile")
			if out, err := a.try("usher plugin new other --kind " + kind + " --dir ."); err == nil || !strings.Contains(out, "not empty") {
				t.Errorf("a folder with files is written to: %v %s", err, out)
			}
		})
	}
}

func TestAPluginThatBreaksTheContractFailsItsTest(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	a.do(t, "usher plugin new leaky --kind admission --dir .")
	source := filepath.Join(a.dir, "main.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.Replace(string(text), "{ <-s; return nil }", "{ return nil }", 1)
	if broken == string(text) {
		t.Fatal("the template has changed")
	}
	if err := os.WriteFile(source, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	a.do(t, "go mod tidy && go build -o leaky .")
	report, err := a.try("usher plugin test ./leaky --calls 0 --patience 1s")
	if err == nil || !strings.Contains(report, "FAIL  released room is used again") || !strings.Contains(report, "\nFAIL: ") {
		t.Errorf("a plugin that keeps released room passes (%v):\n%s", err, report)
	}
	if out, err := a.try("usher plugin test ./nothing"); err == nil || !strings.Contains(out, "nothing") {
		t.Errorf("a plugin that is not there: %v %s", err, out)
	}
	if out, err := a.try("usher plugin test ./leaky --policy other"); err == nil || !strings.Contains(out, `it has ["leaky"]`) {
		t.Errorf("a policy that is not there: %v %s", err, out)
	}
}
