package fifo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/freeport"
	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/policytest"
)

// secret is a password that no text may show.
const secret = "hunter2-is-secret"

// execute lets the server of the tests do something as its administrator.
func execute(t *testing.T, sql string) {
	t.Helper()
	executeAt(t, pgtest.DSN(t), sql)
}

func executeAt(t *testing.T, dsn, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// as returns the DSN of the server for another user, database or port.
func as(t *testing.T, change ...string) string {
	t.Helper()
	return pgtest.DSN(t) + " password=" + secret + " " + strings.Join(change, " ")
}

// Validation finds what is wrong with a database for sure, and says it in words
// for the operator, under the option that is to be changed. What cannot be
// reached may be right.
func TestValidateFindsWrongDatabases(t *testing.T) {
	execute(t, `CREATE ROLE locked LOGIN PASSWORD 'other'; CREATE ROLE reader LOGIN; CREATE ROLE follower LOGIN;
		ALTER ROLE follower SET default_transaction_read_only = on; CREATE SCHEMA others;
		COPY (SELECT line FROM (VALUES ('host all locked 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) AS hba (line))
			TO PROGRAM 'cat > pg_hba.conf'; SELECT pg_reload_conf();`)
	for name, c := range map[string]struct{ dsn, schema, option, message string }{
		"right":             {as(t), pgtest.Schema(), "", ""},
		"wrong password":    {as(t, "user=locked"), "usher", "dsn", `refuses user "locked": its password is wrong`},
		"no such user":      {as(t, "user=nobody"), "usher", "dsn", `refuses user "nobody"`},
		"no such database":  {as(t, "dbname=nowhere"), "usher", "dsn", `no database "nowhere"`},
		"may make nothing":  {as(t, "user=reader"), "mine", "schema", `no schema "mine", and user "reader" may not make it`},
		"may use nothing":   {as(t, "user=reader"), "others", "schema", `user "reader" may not use schema "others"`},
		"a standby":         {as(t, "user=follower"), "usher", "dsn", "standby or read-only"},
		"nobody listens":    {as(t, fmt.Sprint("port=", freeport.ForTest(t))), "usher", "", ""},
		"no such host":      {as(t, "host=nowhere.invalid"), "usher", "", ""},
		"a strange DSN":     {"postgres://u:" + secret + "/x@db/usher", "usher", "dsn", "special character in a password"},
		"not a DSN at all":  {secret, "usher", "dsn", "neither a URL nor a list"},
		"a strange sslmode": {as(t, "sslmode=maybe"), "usher", "dsn", "sslmode"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := json.Marshal(map[string]any{"store": "postgres", "dsn": c.dsn, "schema": c.schema})
			if err != nil {
				t.Fatal(err)
			}
			found := define().Validate(config)
			switch {
			case c.option == "" && len(found) > 0:
				t.Errorf("Validate = %v, want nothing", found)
			case c.option != "" && (len(found) != 1 || found[0].Option != c.option || !strings.Contains(found[0].Message, c.message)):
				t.Errorf("Validate = %v, want %s: %s", found, c.option, c.message)
			}
			if text := fmt.Sprint(found); strings.Contains(text, secret) {
				t.Errorf("a password is in %q", text)
			}
		})
	}
}

// Whoever may make the tables makes them, several at once and again without harm, and
// then a replica whose user may not can use them.
func TestMigrate(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, after, err := fifo.Migrate(t.Context(), pgtest.DSN(t), schema); err != nil || after == 0 {
				t.Errorf("Migrate = %d, %v", after, err)
			}
		})
	}
	all.Wait()
	before, after, err := fifo.Migrate(t.Context(), pgtest.DSN(t), schema)
	if err != nil || before != after {
		t.Errorf("Migrate again = %d, %d, %v", before, after, err)
	}
	execute(t, fmt.Sprintf(`CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA %[1]s TO app;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO app`, schema))
	config := fmt.Sprintf(`{"store": "postgres", "dsn": %q, "schema": %q}`, as(t, "user=app"), schema)
	if found := define().Validate(json.RawMessage(config)); len(found) > 0 {
		t.Errorf("Validate = %v", found)
	}
	lease, err := policytest.Build(t, define(), config).Admission.Admit(t.Context(), slot("runs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context(), policy.Outcome{}); err != nil {
		t.Error(err)
	}
	if _, _, err := fifo.Migrate(t.Context(), as(t, "dbname=nowhere"), schema); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("Migrate = %v", err)
	}
}
