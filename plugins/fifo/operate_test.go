package fifo_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

// status returns what a policy tells its operator.
func status(t *testing.T, p sdk.Policies) fifo.Status {
	t.Helper()
	out, err := p.Admission.(policy.Operable).Operate(t.Context(), policy.Command{Name: "status"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), secret) {
		t.Errorf("a password is in %s", out)
	}
	var s fifo.Status
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits until the status is as it has to be.
func eventually(t *testing.T, p sdk.Policies, want string, is func(fifo.Status) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s := status(t, p)
		if is(s) {
			return
		}
		if time.Now().After(end) {
			text, err := json.Marshal(s)
			t.Fatalf("status %s, %v, want %s", text, err, want)
		}
	}
}

func slot(id string) *policy.AdmitRequest {
	return &policy.AdmitRequest{
		Attempt: 1, Candidates: []policy.Candidate{{ID: "c"}},
		Request: &policy.Request{ID: id, Scopes: []policy.Scope{{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1}}},
	}
}

// The status of any store tells who runs and who waits, for what.
func TestStatus(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"memory": `{}`, "postgres": onPostgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := policytest.Build(t, define(), config)
			lease, err := p.Admission.Admit(t.Context(), slot("runs"))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				lease, err := p.Admission.Admit(t.Context(), slot("waits"))
				if err == nil {
					err = lease.Release(t.Context(), policy.Outcome{})
				}
				done <- err
			}()
			eventually(t, p, "one who runs and one who waits", func(s fifo.Status) bool {
				return s.Store == name && s.Running == 1 && s.Waiting == 1 && len(s.Scopes) == 1 &&
					s.Scopes[0].Scope == "fleet" && s.Scopes[0].Limit == 1 && s.Scopes[0].Used == 1 && s.Scopes[0].Waiting == 1
			})
			if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			eventually(t, p, "nobody", func(s fifo.Status) bool { return s.Running == 0 && s.Waiting == 0 })
			if s := status(t, p); name == "postgres" && (s.Shared.State != "up" || len(s.Shared.Replicas) != 1 || !s.Shared.Replicas[0].Self) {
				t.Errorf("shared %+v", s.Shared)
			}
		})
	}
}

// A store that breaks says why, in words for its operator.
func TestStatusSaysWhyTheStoreIsAway(t *testing.T) {
	t.Parallel()
	for code, message := range map[string]string{
		"53100": "is full: free some of it", "25006": "standby or read-only", "42501": "may not use schema",
		"53300": "no connection left", "XX000": "says: broken",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			schema := pgtest.Schema()
			p := policytest.Build(t, define(), fmt.Sprintf(`{"store": "postgres", "dsn": %q, "schema": %q}`, as(t), schema))
			lease, err := p.Admission.Admit(t.Context(), slot("runs"))
			if err != nil {
				t.Fatal(err)
			}
			execute(t, fmt.Sprintf(`BEGIN; ALTER FUNCTION %[1]s.enter() RENAME TO right_one; CREATE FUNCTION %[1]s.enter() RETURNS void
				LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken' USING ERRCODE = '%[2]s'; END $$; COMMIT`, schema, code))
			t.Cleanup(func() {
				execute(t, fmt.Sprintf(`BEGIN; DROP FUNCTION %[1]s.enter(); ALTER FUNCTION %[1]s.right_one() RENAME TO enter; COMMIT`, schema))
			})
			if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
				t.Error(err)
			}
			eventually(t, p, message, func(s fifo.Status) bool {
				return s.Shared.State == "away" && strings.Contains(s.Shared.Error, message)
			})
		})
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	p := policytest.Build(t, define(), `{}`)
	_, err := p.Admission.(policy.Operable).Operate(t.Context(), policy.Command{Name: "clear"})
	if err == nil || !strings.Contains(err.Error(), "there is status") {
		t.Errorf("Operate = %v", err)
	}
}
