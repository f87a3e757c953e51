package keys_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, func() error { return goleak.Find() })
}
