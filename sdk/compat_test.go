package sdk_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/usherproxy/usher/sdk/internal/policypb"
)

var updateReleased = flag.Bool("update-released", false, "write what is there now to testdata/released-*.txt, at a release")

// What plugins and policies were built on stays: lines may be added, and none
// may change or go. A release writes the lists anew, with -update-released.
func TestNothingThatWasReleasedChanges(t *testing.T) {
	t.Parallel()
	for file, now := range map[string][]string{
		"released-protocol.txt": protocol(policypb.File_usher_policy_v1_policy_proto),
		"released-api.txt": slices.Concat(
			api(t, "policy", "../policy"), api(t, "sdk", "."), api(t, "policytest", "policytest")),
	} {
		path := filepath.Join("testdata", file)
		if *updateReleased {
			if err := os.WriteFile(path, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		released, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(string(released)), "\n") {
			if !slices.Contains(now, line) {
				t.Errorf("%s: %q is not there any more; what was built on it breaks (for what was never released: -args -update-released)", path, line)
			}
		}
	}
}

// The lists tell apart what breaks others and what does not.
func TestTheListsSeeWhatBreaks(t *testing.T) {
	t.Parallel()
	list := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte("package p\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return strings.Join(api(t, "p", dir), "\n")
	}
	const was = "type T struct { A int; b int }\ntype I interface { M(x int) }\nfunc F(x string, y int) error { return nil }\nfunc (t *T) M() {}\nconst C T = 1\n"
	for change, breaks := range map[string]bool{
		"type T struct { A int; C string }\ntype I interface { M(y int) }\nfunc F(a string, b int) error { panic(1) }\nfunc (*T) M() {}\nconst C T = 1\nfunc G() {}\n": false,
		strings.Replace(was, "A int", "A int64", 1):              true,
		strings.Replace(was, "A int", "a int", 1):                true,
		strings.Replace(was, "M(x int) }", "M(x int); N() }", 1): true,
		strings.Replace(was, "y int)", "y ...int)", 1):           true,
		strings.Replace(was, "(t *T) M", "(t T) M", 1):           true,
		strings.Replace(was, "C T = 1", "C T = 2", 1):            true,
	} {
		now := strings.Split(list(change), "\n")
		broken := slices.ContainsFunc(strings.Split(list(was), "\n"), func(line string) bool { return !slices.Contains(now, line) })
		if broken != breaks {
			t.Errorf("breaks: %v, want %v:\n%s\n%s", broken, breaks, change, strings.Join(now, "\n"))
		}
	}
}

// protocol lists what two sides of a connection must agree on.
func protocol(file protoreflect.FileDescriptor) []string {
	lines := []string{"package " + string(file.Package())}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			lines = append(lines, fmt.Sprintf("call %s %s(%s, stream %v) returns (%s, stream %v)",
				s.FullName(), m.Name(), m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer()))
		}
	}
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		for j := range e.Values().Len() {
			lines = append(lines, fmt.Sprintf("enum %s %s = %d", e.FullName(), e.Values().Get(j).Name(), e.Values().Get(j).Number()))
		}
	}
	for i := range file.Messages().Len() {
		lines = append(lines, fields(file.Messages().Get(i))...)
	}
	slices.Sort(lines)
	return lines
}

func fields(m protoreflect.MessageDescriptor) []string {
	lines := []string{"message " + string(m.FullName())}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		kind := f.Kind().String()
		switch {
		case f.Message() != nil:
			kind = string(f.Message().FullName())
		case f.Enum() != nil:
			kind = string(f.Enum().FullName())
		}
		oneof := ""
		if o := f.ContainingOneof(); o != nil {
			oneof = " in " + string(o.Name())
		}
		lines = append(lines, fmt.Sprintf("field %s %s %s = %d%s", f.FullName(), f.Cardinality(), kind, f.Number(), oneof))
	}
	for i := range m.Messages().Len() {
		lines = append(lines, fields(m.Messages().Get(i))...)
	}
	return lines
}

// api lists what the package in a directory exports: a line for each function,
// method, constant, variable, field of a struct and other type.
func api(t *testing.T, name, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	a := apiList{fset: token.NewFileSet(), name: name}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(a.fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				a.function(d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					a.spec(d.Tok, spec)
				}
			}
		}
	}
	slices.Sort(a.lines)
	return a.lines
}

type apiList struct {
	fset  *token.FileSet
	name  string
	lines []string
}

func (a *apiList) add(format string, args ...any) {
	a.lines = append(a.lines, a.name+" "+fmt.Sprintf(format, args...))
}

// text returns code in one line.
func (a *apiList) text(node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, a.fset, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (a *apiList) function(d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	receiver := ""
	if d.Recv != nil {
		receiver = a.text(d.Recv.List[0].Type)
		if !ast.IsExported(strings.TrimLeft(receiver, "*")) {
			return
		}
		receiver = "(" + receiver + ") "
	}
	a.add("func %s%s%s", receiver, d.Name.Name, a.signature(d.Type))
}

// signature returns the types of a function, without names.
func (a *apiList) signature(f *ast.FuncType) string {
	return a.types("[", f.TypeParams, "]", true) + a.types("(", f.Params, ")", false) + a.types(" (", f.Results, ")", false)
}

func (a *apiList) types(open string, list *ast.FieldList, end string, names bool) string {
	if list == nil {
		return ""
	}
	var all []string
	for _, f := range list.List {
		for range max(len(f.Names), 1) {
			all = append(all, a.text(f.Type))
		}
		if names {
			all = append(all, a.text(f.Names[0]))
		}
	}
	return open + strings.Join(all, ", ") + end
}

func (a *apiList) spec(kind token.Token, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			a.typeSpec(s)
		}
	case *ast.ValueSpec:
		for i, name := range s.Names {
			value := ""
			if kind == token.CONST && i < len(s.Values) {
				value = " = " + a.text(s.Values[i])
			}
			typ := ""
			if s.Type != nil {
				typ = " " + a.text(s.Type)
			}
			if name.IsExported() {
				a.add("%s %s%s%s", kind, name.Name, typ, value)
			}
		}
	}
}

func (a *apiList) typeSpec(s *ast.TypeSpec) {
	switch typ := s.Type.(type) {
	case *ast.StructType:
		a.add("type %s struct", s.Name.Name)
		for _, f := range typ.Fields.List {
			if len(f.Names) == 0 {
				a.add("type %s struct, embeds %s", s.Name.Name, a.text(f.Type))
			}
			for _, name := range f.Names {
				if name.IsExported() {
					a.add("type %s struct, %s %s", s.Name.Name, name.Name, a.text(f.Type))
				}
			}
		}
	case *ast.InterfaceType: // a further method breaks who implements it
		var methods []string
		for _, m := range typ.Methods.List {
			if f, ok := m.Type.(*ast.FuncType); ok {
				methods = append(methods, m.Names[0].Name+a.signature(f))
			} else {
				methods = append(methods, a.text(m.Type))
			}
		}
		a.add("type %s interface { %s }", s.Name.Name, strings.Join(methods, "; "))
	case *ast.FuncType:
		a.add("type %s func%s", s.Name.Name, a.signature(typ))
	default:
		a.add("type %s %s", s.Name.Name, a.text(s.Type))
	}
}
