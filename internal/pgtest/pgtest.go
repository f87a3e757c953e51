// Package pgtest runs a PostgreSQL server for the tests of one process.
package pgtest

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/usherproxy/usher/internal/pgserver"
)

var (
	once    sync.Once
	running *pgserver.Server
	failure error
	schemas atomic.Int64
)

// DSN returns how to reach the one server for the tests of this process, which is
// started when it is first asked for. The test fails if there is none.
func DSN(t testing.TB) string {
	t.Helper()
	once.Do(func() { running, failure = pgserver.Start("fsync=off", "max_connections=400") })
	if failure != nil {
		t.Fatalf("PostgreSQL: %v", failure)
	}
	return running.DSN()
}

// Schema returns the name of a schema that nobody uses.
func Schema() string { return fmt.Sprint("test_", schemas.Add(1)) }

// Main is to be called by TestMain. It runs the tests and ends the server, and
// then does what its arguments say, which get the exit code of the tests.
func Main(m *testing.M, then ...func() error) {
	code := m.Run()
	if running != nil {
		then = append([]func() error{running.Stop}, then...)
	}
	for _, f := range then {
		if err := f(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
