package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Problem says why a store cannot be used, in words for its operator. It never
// holds a password.
type Problem struct {
	// Option is the one that is to be looked at: "dsn" or "schema".
	Option string

	// Text says what is wrong, and what to do.
	Text string

	// Certain says that it is wrong until somebody changes the configuration or
	// the database. Otherwise it may pass by itself.
	Certain bool

	err error
}

// Error returns the option and the text.
func (p *Problem) Error() string { return p.Option + ": " + p.Text }

// Unwrap returns the error that the problem explains.
func (p *Problem) Unwrap() error { return p.err }

// oldest is the number of the oldest version of PostgreSQL that has all that the
// store needs.
const oldest = 120000

// explain returns the problem behind an error of the database.
func (db *database) explain(err error) *Problem {
	config := db.pool.Config().ConnConfig
	return explain(err, &config.Config, db.schema)
}

func explain(err error, config *pgconn.Config, schema string) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	at := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	problem := func(option string, certain bool, format string, args ...any) *Problem {
		return &Problem{option, fmt.Sprintf(format, args...), certain, err}
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		if p := explainCode(e, config, schema); p != nil {
			p.err = err
			return p
		}
		return problem("dsn", false, "the database at %s says: %s (SQLSTATE %s)", at, e.Message, e.Code)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return problem("dsn", false, "there is no host %q", config.Host)
		}
		return problem("dsn", false, "the name of host %q cannot be looked up", config.Host)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" && !e.Timeout() {
		return problem("dsn", false, "nothing answers at %s: %v", at, e.Err)
	}
	if errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) {
		return problem("dsn", false, "the database at %s does not answer within %s", at, StepTimeout)
	}
	return problem("dsn", false, "the database at %s cannot be used: %v", at, err)
}

// explainCode returns the problem that the database names by a code, or nil.
func explainCode(e *pgconn.PgError, config *pgconn.Config, schema string) *Problem {
	says := func(option string, certain bool, format string, args ...any) *Problem {
		return &Problem{Option: option, Text: fmt.Sprintf(format, args...) + " (SQLSTATE " + e.Code + ")", Certain: certain}
	}
	at := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	switch e.Code {
	case "28P01", "28000":
		return says("dsn", true, "the database at %s refuses user %q: its password is wrong, or pg_hba.conf has no line for it", at, config.User)
	case "3D000":
		return says("dsn", true, "there is no database %q at %s: make it with createdb, or name another", config.Database, at)
	case "42501":
		return says("schema", true, "user %q may not use schema %q of database %q as the store has to: it needs to own it, or CREATE on the database to make it: %s",
			config.User, schema, config.Database, e.Message)
	case "25006":
		return says("dsn", false, "%s", readOnlyText(at))
	case "53100":
		return says("dsn", false, "the disk of the database at %s is full: free some of it: %s", at, e.Message)
	case "53300":
		return says("dsn", false, "the database at %s has no connection left: raise max_connections, or put a pooler before it; each replica needs %d", at, connections+1)
	case "57P03":
		return says("dsn", false, "the database at %s is starting, or is about to stop", at)
	case "42P01", "42883", "3F000":
		return says("schema", false, "tables or functions that were there are missing in schema %q of database %q: bring them back, or drop the schema and start all replicas again: %s",
			schema, config.Database, e.Message)
	case "UF002":
		return &Problem{Option: "schema", Text: fmt.Sprintf(
			"replicas of another version of Usher use schema %q, whose queue decides by other rules (%s): "+
				"this one takes over as soon as they have all ended, and until then on_store_error decides", schema, e.Message)}
	}
	return nil
}

func readOnlyText(at string) string {
	return fmt.Sprintf("the database at %s is a standby or read-only: name the primary, or all of them with target_session_attrs=read-write", at)
}

// CheckDSN returns what is wrong with a DSN. It connects to nothing, and says
// nothing of what the DSN holds: pieces of a password may be anywhere in one
// that is wrong.
func CheckDSN(dsn string) error {
	_, err := pgxpool.ParseConfig(dsn)
	if err == nil {
		return nil
	}
	for _, known := range []struct{ part, text string }{
		{"invalid port", "it has an invalid port; a special character in a password of a URL has to be escaped, as %2F for a slash"},
		{"invalid keyword/value", `it is neither a URL nor a list such as "host=db user=usher"`},
		{"sslmode is invalid", "it has an invalid sslmode"},
		{"target_session_attrs", "it has invalid target_session_attrs"},
		{"invalid connect_timeout", "it has an invalid connect_timeout"},
		{"pool_", "it has an invalid option that begins with pool_"},
		{"CA file", "the file that sslrootcert names cannot be used"},
		{"cert", "the files that sslcert and sslkey name cannot be used"},
	} {
		if strings.Contains(err.Error(), known.part) {
			return errors.New(known.text)
		}
	}
	return errors.New("it cannot be understood as a URL or as a list such as \"host=db user=usher\"")
}

// Probe looks, for a moment and changing nothing, whether the database can be a
// store. It returns a [*Problem], or nil, also where it cannot tell.
func Probe(ctx context.Context, dsn, schema string) error {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	pool, err := parse(dsn)
	if err != nil {
		return err
	}
	config := pool.ConnConfig
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return explain(err, &config.Config, schema)
	}
	defer func() { _ = conn.Close(ctx) }() // it was looked at
	var version string
	var number int
	var readOnly, there, mayMake, mayUse bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int,
			pg_is_in_recovery() OR current_setting('transaction_read_only')::bool, n.oid IS NOT NULL,
			has_database_privilege(current_database(), 'CREATE'),
			coalesce(has_schema_privilege(n.oid, 'USAGE') AND (has_schema_privilege(n.oid, 'CREATE')
				OR EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'migration')), false)
		FROM (VALUES ($1::text)) AS wanted(name) LEFT JOIN pg_namespace n ON n.nspname = wanted.name`, schema).
		Scan(&version, &number, &readOnly, &there, &mayMake, &mayUse)
	switch {
	case err != nil:
		return explain(err, &config.Config, schema)
	case number < oldest:
		return &Problem{Option: "dsn", Certain: true, Text: fmt.Sprintf("PostgreSQL %s is too old: the store needs version %d or newer", version, oldest/10000)}
	case readOnly:
		return &Problem{Option: "dsn", Certain: true, Text: readOnlyText(net.JoinHostPort(config.Host, fmt.Sprint(config.Port)))}
	case !there && !mayMake:
		return &Problem{Option: "schema", Certain: true, Text: fmt.Sprintf(
			"there is no schema %q, and user %q may not make it: GRANT CREATE ON DATABASE, or make the schema for that user", schema, config.User)}
	case there && !mayUse:
		return &Problem{Option: "schema", Certain: true, Text: fmt.Sprintf(
			"user %q may not use schema %q: GRANT USAGE, CREATE ON SCHEMA, or let the user own it", config.User, schema)}
	}
	return nil
}

// parse returns how to connect.
func parse(dsn string) (*pgxpool.Config, error) {
	if err := CheckDSN(dsn); err != nil {
		return nil, &Problem{Option: "dsn", Text: err.Error(), Certain: true}
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ConnectTimeout = StepTimeout
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = applicationName
	}
	return config, nil
}

// applicationName is by what an administrator of the database knows the
// connections of replicas, unless the DSN names them.
const applicationName = "usher fifo"
