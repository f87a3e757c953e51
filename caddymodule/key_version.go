package caddymodule

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

const (
	// versionRounds makes each guess at a secret cost as much as so many
	// hashes: about 0.1 ms, so that ten thousand keys are loaded in a second.
	versionRounds = 300

	// versionBytes is enough to tell two secrets of a key apart, and too short
	// to tell a secret of any length.
	versionBytes = 6
)

// keyVersion returns a word that changes with the secret of a key. It is equal
// on all replicas, which share what they know of a key. It is different for
// other keys of the same secret, and a guess at the secret can be checked
// against it only as slowly as against a stored password. It is empty for a
// key without a secret.
func keyVersion(provider, key, secret string) (string, error) {
	if secret == "" {
		return "", nil
	}
	salt := "usher key version\x00" + provider + "/" + key
	sum, err := pbkdf2.Key(sha256.New, secret, []byte(salt), versionRounds, versionBytes)
	if err != nil {
		return "", fmt.Errorf("hash the secret of key %s/%s: %w", provider, key, err)
	}
	return hex.EncodeToString(sum), nil
}
