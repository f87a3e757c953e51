package fifo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func TestMain(m *testing.M) {
	postgres.StepTimeout = 20 * time.Second // the machine may be busy
	pgtest.Main(m, func() error { return goleak.Find() })
}

func define() sdk.Definition { return fifo.New().Definition() }

func TestFIFOKeepsTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, define, `{}`, `{"order": "strict_fifo", "queue_limit": 0, "max_wait": "0s", "max_passes": 0}`, onPostgres(t))
}

// onPostgres returns a configuration with a store of its own.
func onPostgres(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf(`{"store": "postgres", "dsn": %q, "schema": %q}`, pgtest.DSN(t), pgtest.Schema())
}

func TestFIFOEnforcesScopes(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB, sdk.Definition, string) sdk.Policies{
		"in process": policytest.Build, "connected": policytest.Dial,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policytest.TestScopes(t, func(t *testing.T) policy.Admitter { return build(t, define(), `{}`).Admission })
		})
	}
}

func TestFIFOEnforcesScopesInPostgres(t *testing.T) {
	t.Parallel()
	policytest.TestScopes(t, func(t *testing.T) policy.Admitter { return policytest.Dial(t, define(), onPostgres(t)).Admission })
}

// Two processes with the same database have one set of limits, and so have two
// instances in one process, of which one may end.
func TestReplicasShareLimits_B40(t *testing.T) {
	t.Parallel()
	config := onPostgres(t)
	d := define()
	one, two, other := policytest.Build(t, d, config), policytest.Build(t, d, config), policytest.Build(t, define(), config)
	request := func(id string) *policy.AdmitRequest {
		return &policy.AdmitRequest{
			NoWait: true, Attempt: 1, Candidates: []policy.Candidate{{ID: "c"}},
			Request: &policy.Request{ID: id, Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}}},
		}
	}
	lease, err := one.Admission.Admit(t.Context(), request("r1"))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []sdk.Policies{two, other} {
		_, err := p.Admission.Admit(t.Context(), request(fmt.Sprint("other", i)))
		if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonConcurrency {
			t.Errorf("Admit = %v, want %s", err, policy.ReasonConcurrency)
		}
	}
	if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
		t.Error(err)
	}
}

// The leases of an old configuration count under a new one.
func TestInstancesOfAPluginShareLeases(t *testing.T) {
	t.Parallel()
	d := define()
	old, young := policytest.Build(t, d, `{}`), policytest.Build(t, d, `{"queue_limit": 5}`)
	request := func(id string) *policy.AdmitRequest {
		return &policy.AdmitRequest{
			NoWait: true, Attempt: 1, Candidates: []policy.Candidate{{ID: "c"}},
			Request: &policy.Request{ID: id, Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}}},
		}
	}
	lease, err := old.Admission.Admit(t.Context(), request("r1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = young.Admission.Admit(t.Context(), request("r2"))
	if r, ok := errors.AsType[*policy.Rejection](err); !ok || r.Reason != policy.ReasonConcurrency {
		t.Errorf("Admit = %v, want %s", err, policy.ReasonConcurrency)
	}
	if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
		t.Error(err)
	}
	if lease, err = young.Admission.Admit(t.Context(), request("r3")); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
		t.Error(err)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, option, message string }{
		"store":           {`{"store": "redis"}`, "store", `must be one of memory, postgres, not "redis"`},
		"no database":     {`{"store": "postgres"}`, "dsn", "needs to know its database"},
		"a wrong DSN":     {`{"store": "postgres", "dsn": "host=h port=x"}`, "dsn", "invalid port"},
		"a useless DSN":   {`{"dsn": "host=h"}`, "dsn", "store postgres only"},
		"schema":          {`{"store": "postgres", "dsn": "host=h", "schema": "Usher"}`, "schema", "small letters"},
		"without a store": {`{"on_store_error": "open"}`, "on_store_error", "store postgres only"},
		"on store error":  {`{"store": "postgres", "dsn": "host=h", "on_store_error": "maybe"}`, "on_store_error", `must be one of closed, local, open, not "maybe"`},
		"order":           {`{"order": "lifo"}`, "order", "strict_fifo"},
		"queue limit":     {`{"queue_limit": -1}`, "queue_limit", "-1 is negative"},
		"wait":            {`{"max_wait": "-1s"}`, "max_wait", "-1s is negative"},
		"a bare number":   {`{"max_wait": 60}`, "max_wait", "duration"},
		"passes":          {`{"max_passes": -2}`, "max_passes", "-2 is negative"},
		"unknown options": {`{"max_waits": "1s"}`, "max_waits", "no such option"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := define().Validate(json.RawMessage(c.config))
			if len(ds) != 1 || ds[0].Option != c.option || !strings.Contains(ds[0].Message, c.message) {
				t.Errorf("Validate(%s) = %v, want %s: %s", c.config, ds, c.option, c.message)
			}
		})
	}
}
