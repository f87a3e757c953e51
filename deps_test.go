package usher_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/usherproxy/usher"

// directions say which of our packages the code of a folder may import. The
// longest folder that holds a package counts. A folder stands for all that is
// below it, and "." for the package at the root.
var directions = map[string]struct {
	imports []string
	why     string
}{
	"policy":      {nil, "policy is the contract that everything else imports"},
	"sdk":         {[]string{"policy", "sdk"}, "a policy author needs policy and sdk, and nothing else of ours"},
	"plugins":     {[]string{"policy", "sdk", "plugins"}, "a default plugin is a plugin like any other"},
	"examples":    {[]string{"policy", "sdk", "examples"}, "examples show what third parties can do"},
	"internal":    {[]string{"policy", "sdk", "internal"}, "internal packages serve caddymodule, not the other way round"},
	"caddymodule": {[]string{"policy", "sdk", "internal", "caddymodule"}, "caddymodule meets plugins over the wire only"},
	"bench":       {[]string{"policy", "sdk", "internal", "caddymodule", "plugins", "bench"}, "a benchmark may measure everything"},
	".":           {[]string{"caddymodule", "plugins", "sdk", "policy"}, "the root links the module and its default plugins"},
	"cmd":         {[]string{".", "caddymodule", "examples"}, "a command only links what it is made of"},
}

// A file is one Go file of the repository.
type file struct {
	path    string
	folder  string // of its package, "." at the root
	test    bool
	comment bool // has a package comment
	name    string
	imports []string
}

// files parses all Go files of the repository but test data.
func files(t *testing.T) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || name == "node_modules" || p != "." && strings.HasPrefix(name, ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, file{
			path: p, folder: path.Dir(filepath.ToSlash(p)), test: strings.HasSuffix(name, "_test.go"),
			comment: f.Doc != nil, name: f.Name.Name, imports: imports(t, f),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func imports(t *testing.T, f *ast.File) []string {
	t.Helper()
	var all []string
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	return all
}

// ours returns the folder of an import of this module.
func ours(name string) (folder string, ok bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

// top returns the folder of the first level that holds a package.
func top(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		rule, ok := directions[top(f.folder)]
		if !ok {
			t.Errorf("%s: no rule says what a package of %s may import", f.path, top(f.folder))
		}
		for _, name := range f.imports {
			if folder, ok := ours(name); ok && !f.test && !slices.Contains(rule.imports, top(folder)) {
				t.Errorf("%s imports %s: %s", f.path, folder, rule.why)
			}
		}
	}
}

func TestPluginsDoNotKnowEachOther(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		plugin, ok := pluginOf(f.folder)
		if !ok || f.test {
			continue
		}
		for _, name := range f.imports {
			folder, _ := ours(name)
			if other, ok := pluginOf(folder); ok && other != plugin {
				t.Errorf("%s imports %s", f.path, folder)
			}
		}
	}
}

// pluginOf returns the name of the plugin that a folder belongs to.
func pluginOf(folder string) (string, bool) {
	rest, ok := strings.CutPrefix(folder, "plugins/")
	name, _, _ := strings.Cut(rest, "/")
	return name, ok
}

// standard matches imports of the standard library.
var standard = regexp.MustCompile(`^[a-z0-9]+(/[a-z0-9]+)*$`)

func TestPolicyImportsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		for _, name := range f.imports {
			if top(f.folder) == "policy" && !standard.MatchString(name) && !(f.test && name == module+"/policy") {
				t.Errorf("%s imports %s", f.path, name)
			}
		}
	}
}

// A package for tests has a name that ends in "test". Only such packages and
// test files import package testing and each other.
func TestOnlyTestsImportTestPackages(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		if f.test || strings.HasSuffix(f.folder, "test") {
			continue
		}
		for _, name := range f.imports {
			folder, isOurs := ours(name)
			if name == "testing" || isOurs && strings.HasSuffix(folder, "test") {
				t.Errorf("%s imports %s", f.path, name)
			}
		}
	}
}

func TestEveryPackageHasOneComment(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{} // by folder
	for _, f := range files(t) {
		if f.test {
			continue
		}
		if _, ok := comments[f.folder]; !ok {
			comments[f.folder] = nil
		}
		if f.comment {
			comments[f.folder] = append(comments[f.folder], f.path)
		}
	}
	for folder, where := range comments {
		if len(where) != 1 {
			t.Errorf("package %s has %d package comments %v, want 1", folder, len(where), where)
		}
	}
}

func TestTestsAreWrittenFromOutside(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		inside := !strings.HasSuffix(f.name, "_test") && f.name != "main"
		if f.test && inside && path.Base(f.path) != "export_test.go" {
			t.Errorf("%s is in package %s, want %s_test", f.path, f.name, f.name)
		}
	}
}

func TestModuleReplacesNothing(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if line := regexp.MustCompile(`(?m)^\s*replace\b.*$`).Find(mod); line != nil {
		t.Errorf("go.mod has %q: nobody who requires this module would get it", line)
	}
}
