package postgres_test

import (
	"strings"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// Whatever is wrong with a DSN, no piece of it is in the message: a password may
// be anywhere.
func FuzzDSNErrorsHoldNoSecret(f *testing.F) {
	const secret = "hunter2-is-secret"
	for _, dsn := range []string{
		"postgres://u:%s@h:x/d", "postgres://u:%s@h/d?sslmode=x", "postgres://h/d?password=%s&port=x", "host=h password=%s port=x",
		"password='%s host=h", "host=h %s", "postgres://u:a/%s@h/d", "postgres://u:a#%s@h/d", "postgres://u:%%%s@h/d", "service=%s",
		"host=h password=%s sslrootcert=/nowhere", "host=h password=%s pool_max_conns=many",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, format string) {
		err := postgres.CheckDSN(strings.Replace(format, "%s", secret, 1))
		if err != nil && !strings.Contains(format, secret) && strings.Contains(err.Error(), secret) {
			t.Errorf("a password is in %q", err)
		}
	})
}
