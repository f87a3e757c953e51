package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// secretPlaceholder matches what a secret may be written as, and nothing else.
var (
	secretPlaceholder  = regexp.MustCompile(`^\{(?:env|file)\.[^{}]+\}$`)
	secretPlaceholders = regexp.MustCompile(`\{(?:env|file)\.[^{}]+\}`)
)

var (
	errLiteralSecret = errors.New(
		"the secret must not be written here, where whoever may read the configuration can read it; use {env.VARIABLE} or {file./path}",
	)
	errNoSecret  = errors.New("the secret is missing; use {env.VARIABLE} or {file./path}")
	errShortFile = errors.New("{file.NAME} stands for a part of the request in a Caddyfile; use an absolute path, as in {file./path}")
)

// secretSyntax returns an error if s is not the placeholder of a secret. The
// error does not show s, which may be the secret.
func secretSyntax(s string) error {
	switch {
	case s == "":
		return errNoSecret
	case strings.HasPrefix(s, "{http.request.uri.path.file."):
		return errShortFile
	case !secretPlaceholder.MatchString(s):
		return errLiteralSecret
	}
	return nil
}

// resolveSecret returns the secret that the placeholder s stands for, without
// the line end of its file. Its errors name the placeholder, never the secret.
func resolveSecret(repl *caddy.Replacer, s string) (string, error) {
	if err := secretSyntax(s); err != nil {
		return "", err
	}
	secret, err := resolvePlaceholder(repl, s)
	if err != nil {
		return "", err
	}
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s contains a space or another character that no key has", s)
	}
	return secret, nil
}

// resolvePlaceholder returns the value of s, an {env.*} or {file.*}.
func resolvePlaceholder(repl *caddy.Replacer, s string) (string, error) {
	value, _ := repl.GetString(s[1 : len(s)-1])
	value = strings.TrimRight(value, "\r\n")
	switch {
	case value != "":
		return value, nil
	case strings.HasPrefix(s, "{env."):
		return "", fmt.Errorf("%s is unset or empty; set the variable in the environment of this process", s)
	default:
		return "", fmt.Errorf("%s cannot be read or is empty", s)
	}
}

// resolveAll replaces each {env.*} and {file.*} in s.
func resolveAll(repl *caddy.Replacer, s string) (string, error) {
	var errs []error
	s = secretPlaceholders.ReplaceAllStringFunc(s, func(placeholder string) string {
		value, err := resolvePlaceholder(repl, placeholder)
		if err != nil {
			errs = append(errs, err)
		}
		return value
	})
	return s, errors.Join(errs...)
}

// secrets returns the secrets of all keys in service by "provider/key"; those
// of keys without a credential are "".
func (c *Config) secrets(repl *caddy.Replacer) (map[string]string, error) {
	p := &problems{source: c.Source}
	secrets := make(map[string]string)
	for i := range c.Providers {
		provider := &c.Providers[i]
		r := p.root().item("providers", i, named("provider", provider.Name))
		for j, k := range provider.Keys {
			if k.Disabled || k.Secret == secretNone {
				secrets[provider.Name+"/"+k.Name] = ""
				continue
			}
			secret, err := resolveSecret(repl, k.Secret)
			if err != nil {
				r.item("keys", j, named("key", k.Name)).errorf("%w", err)
			}
			secrets[provider.Name+"/"+k.Name] = secret
		}
	}
	return secrets, p.err()
}

// options returns the options of the policy with their placeholders replaced.
// They may hold secrets. An empty object stands for none.
func (u *PolicyUse) options(repl *caddy.Replacer) (json.RawMessage, error) {
	if len(u.ConfigRaw) == 0 {
		return json.RawMessage("{}"), nil
	}
	dec := json.NewDecoder(bytes.NewReader(u.ConfigRaw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode options: %w", err)
	}
	v, err := resolveValue(repl, v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// resolveValue replaces placeholders in all strings of a JSON value.
func resolveValue(repl *caddy.Replacer, v any) (any, error) {
	var errs []error
	resolve := func(v any) any {
		v, err := resolveValue(repl, v)
		if err != nil {
			errs = append(errs, err)
		}
		return v
	}
	switch v := v.(type) {
	case string:
		return resolveAll(repl, v)
	case []any:
		for i := range v {
			v[i] = resolve(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = resolve(v[name])
		}
	}
	return v, errors.Join(errs...)
}

// environ returns the environment of the plugin as sorted "NAME=value".
func (p *Plugin) environ(repl *caddy.Replacer) ([]string, error) {
	var env []string
	var errs []error
	for name, value := range p.Env {
		value, err := resolveAll(repl, value)
		if err != nil {
			errs = append(errs, fmt.Errorf("env %s: %w", name, err))
		}
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, errors.Join(errs...)
}
