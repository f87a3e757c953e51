package keys_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestKeepsTheContract(t *testing.T) {
	t.Parallel()
	define := func() sdk.Definition {
		p := keys.New()
		p.Logger = slog.New(slog.DiscardHandler)
		return p.Definition()
	}
	policytest.TestDefinition(t, define, ``, `{"order": "least_loaded", "breaker": {"failures": 1}}`, `{"order": ["affinity", "quota_balanced", "least_recently_used"], "quota_reserve": 5}`)
}

func TestSelectsAndLearnsAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{"breaker": {"open": "1ns", "open_max": "1ns"}}`, "k1", "k2", "k3")
	dispositions := policy.Dispositions()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 200 {
				id := fmt.Sprint(i, "-", j)
				first := s.ask(policy.Request{ID: id})[0].Candidate
				s.endFor(id, first, dispositions[(i+j)%len(dispositions)])
			}
		})
	}
	wg.Wait()
}

// What takes a key out of service, and what brings it back, is logged once.
func TestMovesAreLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t, `{}`, "k1")
	var log bytes.Buffer
	s.plugin.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for range 9 {
		s.end("k1", policy.Timeout)
		s.end("k1", policy.AuthFailed, status(http.StatusUnauthorized))
	}
	s.wait(time.Hour)
	s.ask(policy.Request{ID: "probe"})
	s.endFor("probe", "k1", policy.OK)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, want := range []string{
		`level=WARN msg="provider refused key" provider=p key=k1`,
		`level=WARN msg="key fails and is left alone" provider=p key=k1`,
		`level=INFO msg="key is back" provider=p key=k1 breaker=key`,
		`level=INFO msg="key is back" provider=p key=k1 breaker=circuit`,
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %q in\n%s", i+1, want, log.String())
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d lines, want 4", len(lines))
	}
}
