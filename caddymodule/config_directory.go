package caddymodule

import (
	"crypto/sha256"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/policy"
)

// A digest is the SHA-256 hash of a caller's key.
type digest [sha256.Size]byte

// An identity is who a request comes from, and what follows from that.
type identity struct {
	policy.Caller

	// Priority is the highest one that the caller may ask for, and the one it
	// gets without.
	Priority int

	// Scopes are those of the caller, its group and the fleet; read only.
	Scopes []policy.Scope
}

// A directory knows the callers of a configuration. It holds hashes of their
// keys, not the keys, and looks them up by hash, so that the time of a look-up
// tells nothing about a key.
type directory struct {
	byKey    map[digest]*identity
	byID     map[string]*identity
	stranger identity
	callerID string
}

// maxCallerID is the length of the longest name, in bytes, that a placeholder
// may give a caller. It keeps traces and queues free of what somebody sent in
// a header.
const maxCallerID = 256

// directory returns the callers of c, which must have passed check, and reads
// their keys.
func (c *Config) directory(repl *caddy.Replacer) (*directory, error) {
	p := &problems{source: c.Source}
	fleet := scopes("fleet", c.Limits)
	dir := &directory{
		byKey:    make(map[digest]*identity),
		byID:     make(map[string]*identity),
		stranger: identity{Scopes: fleet},
		callerID: c.CallerID,
	}
	for i := range c.Callers {
		caller := &c.Callers[i]
		r := p.root().item("callers", i, named("caller", caller.ID))
		id := c.identity(caller, fleet)
		dir.byID[caller.ID] = id
		for _, d := range caller.digests(r, repl) {
			if other, ok := dir.byKey[d]; ok && other != id {
				r.errorf("its key is also that of caller %s; give each its own", other.ID)
				continue
			}
			dir.byKey[d] = id
		}
	}
	return dir, p.err()
}

// identity returns who caller is.
func (c *Config) identity(caller *Caller, fleet []policy.Scope) *identity {
	id := &identity{
		Caller:   policy.Caller{ID: caller.ID, Group: caller.Group},
		Priority: caller.Priority,
		Scopes:   scopes("caller:"+caller.ID, caller.Limits),
	}
	for i := range c.Groups {
		if g := &c.Groups[i]; g.Name == caller.Group {
			id.Scopes = append(id.Scopes, scopes("group:"+g.Name, g.Limits)...)
		}
	}
	id.Scopes = slices.Clip(append(id.Scopes, fleet...))
	return id
}

// digests returns the hashes of the keys that identify the caller.
func (caller *Caller) digests(r reporter, repl *caddy.Replacer) []digest {
	var digests []digest
	if caller.KeySHA256 != "" {
		d, err := parseDigest(caller.KeySHA256)
		if err != nil {
			r.in("key_sha256", "key_sha256").errorf("%w", err)
		}
		digests = append(digests, d)
	}
	if caller.Key != "" {
		key, err := resolveSecret(repl, caller.Key)
		if err != nil {
			r.in("key", "key").errorf("%w", err)
			return digests
		}
		digests = append(digests, sha256.Sum256([]byte(key)))
	}
	return digests
}

// identify returns who sends a request with the given key, which is empty if
// the request has none. Repl is the replacer of the request. It returns false
// if the site identifies callers and this one is unknown.
func (d *directory) identify(key string, repl *caddy.Replacer) (identity, bool) {
	if d.open() {
		return d.stranger, true
	}
	if key != "" {
		if id, ok := d.byKey[sha256.Sum256([]byte(key))]; ok {
			return *id, true
		}
	}
	if d.callerID == "" {
		return identity{}, false
	}
	name := repl.ReplaceAll(d.callerID, "")
	if name == "" || len(name) > maxCallerID {
		return identity{}, false
	}
	if id, ok := d.byID[name]; ok {
		return *id, true
	}
	stranger := d.stranger
	stranger.ID = name
	return stranger, true
}

// open reports whether the site identifies nobody.
func (d *directory) open() bool { return len(d.byID) == 0 && d.callerID == "" }
