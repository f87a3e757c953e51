package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgtest"
	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
)

// listenTo returns a connection that hears what the replicas of a schema do.
func listenTo(t *testing.T, schema string) *pgx.Conn {
	t.Helper()
	conn := connect(t)
	if _, err := conn.Exec(t.Context(), "LISTEN usher_fifo_"+schema); err != nil {
		t.Fatal(err)
	}
	return conn
}

// While somebody waits elsewhere, replicas hear what the log says without asking.
func TestEntriesArePublished(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	listening(t, a, b)
	conn := listenTo(t, schema)
	lease := admit(t, a, ask("a", 1))
	waits := line(t, b, ask("b", 1))
	agree(t, []*postgres.Store{a, b})
	seqB, _ := b.At()
	release(t, lease)
	for {
		n, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(n.Payload, "entry ") {
			continue
		}
		e, commands, err := postgres.ParsePublished(n.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, replica := a.At(); e.Seq != seqB+1 || e.Replica != replica || len(commands) != 1 || commands[0].Release == nil || commands[0].Release.ID != "a" {
			t.Errorf("entry %+v with %+v was published, want the release of a", e, commands)
		}
		break
	}
	release(t, (<-waits))
}

// Notifications are hints: those that come twice, late, in another order or
// broken, or of another log, change nothing.
func TestStrangeNotificationsChangeNothing(t *testing.T) {
	t.Parallel()
	schema, l := pgtest.Schema(), newLoad(t, 1)
	stores := []*postgres.Store{open(t, schema), open(t, schema), open(t, schema)}
	listening(t, stores...)
	ctx, cancel := context.WithCancel(t.Context())
	var meddler, clients sync.WaitGroup
	conn := listenTo(t, schema)
	meddler.Go(func() { meddle(ctx, t, conn, schema) })
	for i, s := range stores {
		clients.Go(func() { l.run(fmt.Sprint("s", i, "-"), s, 8, 40) })
	}
	clients.Wait()
	cancel()
	meddler.Wait()
	agree(t, stores)
	l.check(schema)
	for _, s := range stores {
		l.free(s)
		agree(t, stores)
	}
}

// meddle sends again what it hears, some of it later or changed.
func meddle(ctx context.Context, t *testing.T, conn *pgx.Conn, schema string) {
	sends := connect(t)
	var heard []string
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		words := strings.Split(n.Payload, " ")
		if len(words) != 9 || n.PID == sends.PgConn().PID() {
			continue
		}
		heard = append(heard, n.Payload)
		payload := n.Payload
		switch rand.IntN(4) {
		case 0: // follows the same entry of another log
			words[5], words[6], words[7] = words[2], words[3]+"0", words[4]
			words[1], words[3] = fmt.Sprint(number(words[1])+1), "99"
			payload = strings.Join(words, " ")
		case 1:
			payload = payload[:rand.IntN(len(payload))]
		case 2: // is from the time to come
			words[1], words[3] = fmt.Sprint(number(words[1])+2+rand.Int64N(1000)), "99"
			payload = strings.Join(words, " ")
		default:
			payload = heard[rand.IntN(len(heard))]
		}
		if _, err := sends.Exec(context.WithoutCancel(ctx), "SELECT pg_notify($1, $2)", "usher_fifo_"+schema, payload); err != nil {
			t.Error(err)
			return
		}
	}
}

// What a notification cannot hold is read instead.
func TestLongEntriesAreRead(t *testing.T) {
	t.Parallel()
	schema := pgtest.Schema()
	a, b := open(t, schema), open(t, schema)
	listening(t, a, b)
	lease := admit(t, a, ask("a", 1))
	waits := line(t, b, ask("b", 1))
	long := ask(strings.Repeat("long", 4000), 2)
	more := line(t, a, long)
	release(t, lease)
	release(t, (<-waits))
	release(t, (<-more))
	agree(t, []*postgres.Store{a, b})
}

func number(word string) int64 {
	n, _ := strconv.ParseInt(word, 10, 64) // the store writes numbers
	return n
}
