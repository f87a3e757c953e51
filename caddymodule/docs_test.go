package caddymodule_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/usherproxy/usher/caddymodule"
)

// blocks are the places where options stand: the Caddyfile up to there, and the
// section of docs/configuration.md with their table.
var blocks = map[string]struct {
	head, section string
}{
	"site":     {"", "### Of a site"},
	"provider": {"provider p http://p.example {\n", "### Of a provider"},
	"key":      {"provider p http://p.example {\nkey k none {\n", "### Of a key"},
	"model":    {"model m {\n", "### Of a model"},
	"serve":    {"model m {\nserve p {\n", "### Of a model"},
	"caller":   {"caller c {\n", "### Of a caller or group"},
	"group":    {"group g {\n", "### Of a caller or group"},
	"session":  {"session {\n", "### Of sessions"},
	"global":   {"", "## What all sites share"},
	"plugin":   {"plugin p ./p {\n", "## What all sites share"},
}

// optionsOf returns the options that the parser takes in a block: it lists
// them where there is another one.
func optionsOf(t *testing.T, block string) []string {
	t.Helper()
	const unknown = "xxxxxxxxxxxxxxxxxxxxxxxx"
	head := blocks[block].head
	text := "usher {\n" + head + unknown + "\n" + strings.Repeat("}\n", strings.Count(head, "{")+1)
	d := caddyfile.NewTestDispenser(text)
	var err error
	if block == "global" || block == "plugin" {
		_, err = caddymodule.ParseGlobalOption(d, nil)
	} else {
		err = new(caddymodule.Config).UnmarshalCaddyfile(d)
	}
	if err == nil {
		t.Fatalf("%s: the option %s is accepted", block, unknown)
	}
	list := regexp.MustCompile(`use one of ([a-z0-9_, ]+), at |did you mean "([a-z0-9_]+)"\?`).FindStringSubmatch(err.Error())
	if list == nil {
		t.Fatalf("%s: no options in %q", block, err)
	}
	return strings.Split(list[1]+list[2], ", ")
}

// documented returns the first words of what the tables of a section of
// docs/configuration.md explain.
func documented(t *testing.T, section string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n##")
	var words []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*(?:\\\\\\|[^|]*)*) \\|").FindAllStringSubmatch(rest, -1) {
		for _, code := range regexp.MustCompile("`([a-z0-9_]+)[^`]*`").FindAllStringSubmatch(row[1], -1) {
			words = append(words, code[1])
		}
	}
	return words
}

func TestEachOptionIsDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("caddyfile.go")
	if err != nil {
		t.Fatal(err)
	}
	global, err := os.ReadFile("caddyfile_global.go")
	if err != nil {
		t.Fatal(err)
	}
	real := make(map[string][]string)
	for name, b := range blocks {
		words := documented(t, b.section)
		for _, option := range optionsOf(t, name) {
			real[b.section] = append(real[b.section], option)
			if !slices.Contains(words, option) {
				t.Errorf("%s: docs/configuration.md has no row for %s", name, option)
			}
			if !regexp.MustCompile(`(?m)^//\t+` + option + `\b`).MatchString(string(source) + string(global)) {
				t.Errorf("%s: the syntax in the comments of the parser lacks %s", name, option)
			}
		}
	}
	for section, options := range real {
		for _, word := range documented(t, section) {
			if !slices.Contains(options, word) {
				t.Errorf("docs/configuration.md explains %s, which is no option", word)
			}
		}
	}
}
