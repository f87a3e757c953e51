package caddymodule_test

import (
	"strings"
	"testing"

	"github.com/usherproxy/usher/caddymodule"
)

func TestKeyVersionsTellSecretsApart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, key := range [][3]string{
		{"openai", "k1", secret1},
		{"openai", "k1", secret2},
		{"openai", "k2", secret1},
		{"local", "k1", secret1},
		{"openai", "k1", secret1 + "x"},
		{"openai", "k1", "x"},
	} {
		version, err := caddymodule.KeyVersion(key[0], key[1], key[2])
		if err != nil || len(version) != 12 || seen[version] || strings.Contains(version, key[2]) && len(key[2]) > 1 {
			t.Errorf("version of %v is %q (%v), want a new one", key, version, err)
		}
		seen[version] = true
		if again, _ := caddymodule.KeyVersion(key[0], key[1], key[2]); again != version {
			t.Errorf("version of %v is %q and then %q", key, version, again)
		}
	}
	if version, err := caddymodule.KeyVersion("local", "k1", ""); version != "" || err != nil {
		t.Errorf("version of no secret is %q (%v)", version, err)
	}
}

// Replicas of any build must agree.
func TestKeyVersionsStayTheSame(t *testing.T) {
	t.Parallel()
	const want = "5635a6dcf0bb" // PBKDF2 with SHA-256, as another implementation has it
	if got, err := caddymodule.KeyVersion("openai", "k1", "sk-fixed"); got != want || err != nil {
		t.Errorf("version %q (%v), want %q", got, err, want)
	}
}

func BenchmarkKeyVersion(b *testing.B) {
	for b.Loop() {
		if _, err := caddymodule.KeyVersion("openai", "k1", secret1); err != nil {
			b.Fatal(err)
		}
	}
}
