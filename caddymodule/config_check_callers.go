package caddymodule

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

func (c *Config) checkCallers(r reporter) {
	ids := make([]string, len(c.Callers))
	groups := make([]string, len(c.Groups))
	for i := range c.Groups {
		g := &c.Groups[i]
		groups[i] = g.Name
		r := r.item("groups", i, named("group", g.Name))
		checkName(r, plainName, g.Name)
		checkLimits(r, g.Limits)
	}
	for i := range c.Callers {
		caller := &c.Callers[i]
		ids[i] = caller.ID
		r := r.item("callers", i, named("caller", caller.ID))
		checkName(r, wideName, caller.ID)
		c.checkIdentity(r, caller)
		if caller.Group != "" && !slices.Contains(groups, caller.Group) {
			r.in("group", fmt.Sprintf("group %q", caller.Group)).
				errorf("no such group; %s", hint(caller.Group, groups))
		}
		checkLimits(r, caller.Limits)
	}
	checkUnique(r, "callers", "caller", ids)
	checkUnique(r, "groups", "group", groups)
	if c.CallerID != "" && !strings.Contains(c.CallerID, "{") {
		r.in("caller_id", "caller_id").
			errorf("every request would have the same caller; use a placeholder such as {http.auth.user.id}")
	}
}

// checkIdentity checks how the caller is told from others.
func (c *Config) checkIdentity(r reporter, caller *Caller) {
	if caller.Key == "" && caller.KeySHA256 == "" && c.CallerID == "" {
		r.errorf(`it has no key; add "key {env.VARIABLE}" or "key_sha256 HASH"`)
	}
	if caller.Key != "" {
		checkSecret(r.in("key", "key"), caller.Key)
	}
	if caller.KeySHA256 != "" {
		if err := digestSyntax(caller.KeySHA256); err != nil {
			r.in("key_sha256", "key_sha256").errorf("%w", err)
		}
	}
}

// digestSyntax returns an error if s is not a SHA-256 hash.
func digestSyntax(s string) error {
	_, err := parseDigest(s)
	return err
}

// parseDigest decodes a SHA-256 hash. Its error does not show s, which may be
// a key that was put in place of its hash.
func parseDigest(s string) (digest, error) {
	var d digest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf(`the hash of a key must be %d hexadecimal digits, as from: printf %%s "$KEY" | sha256sum`, hex.EncodedLen(len(d)))
	}
	copy(d[:], b)
	return d, nil
}
