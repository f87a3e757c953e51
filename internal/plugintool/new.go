package plugintool

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// Kinds are the kinds of policy that there are templates for.
var Kinds = []string{"admission", "selection"}

// A Module is a plugin to be written.
type Module struct {
	// Name is the name of the policy, its plugin and its executable.
	Name string

	// Kind is one of [Kinds].
	Kind string

	// Path is the path of the Go module. The default is example.com/ and Name.
	Path string

	// Version is the version of Usher to build with; if it is no release,
	// "go mod tidy" chooses the latest one.
	Version string
}

// goVersion is the least version of Go that the SDK needs.
const goVersion = "1.26.0"

//go:embed template
var templates embed.FS

var (
	moduleName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	release    = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)
)

// Write writes the module to a directory, which it makes. It overwrites
// nothing: a directory that is not empty is an error.
func (m Module) Write(dir string) error {
	if !moduleName.MatchString(m.Name) || slices.Contains([]string{"keys", "fifo", "none"}, m.Name) {
		return fmt.Errorf("%q cannot be the name of a policy: it has lower-case letters, digits, - and _, begins with a letter, and is not keys, fifo or none", m.Name)
	}
	if !slices.Contains(Kinds, m.Kind) {
		return fmt.Errorf("no such kind %q; there are: %s", m.Kind, strings.Join(Kinds, ", "))
	}
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := m.files()
	if err != nil {
		return err
	}
	for name, content := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the content of the files of the module.
func (m Module) files() (map[string][]byte, error) {
	data := struct {
		Module, Name, Kind, Version, GoVersion, Config, Pad string
	}{
		Module: m.Path, Name: m.Name, Kind: m.Kind, GoVersion: goVersion, Config: `{"max": 1}`,
		Pad: strings.Repeat(" ", max(0, 16-len(m.Name))),
	}
	if data.Module == "" {
		data.Module = "example.com/" + m.Name
	}
	if m.Kind == "selection" {
		data.Config = `{"region": "us"}`
	}
	if release.MatchString(m.Version) {
		data.Version = m.Version
	}
	files := map[string][]byte{ // of the simulated provider
		"secrets/one": []byte("sk-simulated-one\n"),
		"secrets/two": []byte("sk-simulated-two\n"),
	}
	for _, from := range []string{"template/common", "template/" + m.Kind} {
		parsed, err := template.ParseFS(templates, from+"/*.tmpl")
		if err != nil {
			return nil, err
		}
		for _, t := range parsed.Templates() {
			var text bytes.Buffer
			if err := t.Execute(&text, data); err != nil {
				return nil, err
			}
			name := strings.TrimSuffix(path.Base(t.Name()), ".tmpl")
			if name == "gitignore" {
				name = ".gitignore"
			}
			files[name] = text.Bytes()
		}
	}
	return files, nil
}
