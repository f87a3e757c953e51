package caddymodule_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// oddCommand is the argument with which the test binary serves an odd policy.
const oddCommand = "odd-policy"

// pluginOption is the global option that declares an odd policy under its own
// name.
func pluginOption(t *testing.T, name string, more string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("usher {\nplugin %s %s %s %[1]s {\n%s\n}\n}\n", name, path, oddCommand, more)
}

// odd are policies for tests, as plugins of others have them.
var odd = map[string]sdk.Policies{}

func serveOdd(name string) {
	sdk.Serve(name, struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		p, ok := odd[name]
		if !ok {
			return p, errors.New("no such policy")
		}
		return p, nil
	})
}

var (
	_ = time.Second
	_ policy.Selector
)
