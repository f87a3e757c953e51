package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/pgserver"
)

// stop stops the process and all that it has started, or lets them go on.
func (u *usher) stop(t *testing.T, s syscall.Signal) {
	t.Helper()
	u.signal(t, s)
	for _, p := range u.plugins() {
		if err := syscall.Kill(p.pid, s); err != nil {
			t.Error(err)
		}
	}
}

// shares is a database that Ushers share, and how they are set up.
type shares struct {
	dsn    string
	config setup
}

// shareKey prepares Ushers that share a database and a key of a provider, which takes so
// many requests at a time.
func shareKey(t *testing.T, url string, limit int) shares {
	t.Helper()
	server, err := pgserver.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return shares{server.DSN(), setup{global: "log default {\nexclude admin.api\n}", env: append(slices.Clone(keyEnv), "E2E_DSN="+server.DSN()), usher: fmt.Sprintf(`provider openai %s {
		key k1 {env.E2E_KEY_1} {
			limit concurrency %d
		}
	}
	model gpt-4o openai
	admit fifo {
		store postgres
		dsn {env.E2E_DSN}
		max_wait 0s
	}`, url, limit)}}
}

// replicas returns how many replicas have a lease in the database.
func (s shares) replicas(t *testing.T) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	err = conn.QueryRow(ctx, `SELECT count(*) FROM usher.replica`).Scan(&n)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return n
}

// have waits until so many replicas have a lease.
func (s shares) have(t *testing.T, n int) {
	t.Helper()
	eventually(t, longTime, func() error {
		if got := s.replicas(t); got != n {
			return fmt.Errorf("%d replicas have a lease, want %d", got, n)
		}
		return nil
	})
}

// line is many callers at several replicas, who stand in one line.
type line struct {
	replicas []*usher
	waiting  []int          // at each replica
	rank     map[string]int // who has a lower one has come before
	callers  map[string]*pending
}

// join lets one caller come to each of some replicas. It returns when they have their places. The tag of a
// request begins with the number of its replica.
func (l *line) join(t *testing.T, rank int, at ...int) {
	t.Helper()
	for _, i := range at {
		tag := fmt.Sprintf("r%d-%d", i, rank)
		l.rank[tag] = rank
		l.callers[tag] = newClient(l.replicas[i].url).begin(t, ask{tag: tag, whole: true})
		l.waiting[i]++
	}
	for _, i := range at {
		l.replicas[i].fifo(t, func(s fifoState) bool { return s.Waiting == l.waiting[i] })
	}
}

// fifoState is what usher fifo status tells.
type fifoState struct {
	Running int
	Waiting int
	Shared  struct {
		State    string
		Replicas []fifoReplica
	}
	Scopes []struct{ ID string }
}

type fifoReplica struct {
	Self    bool
	Waiting int
}

// fifo waits until what usher fifo status tells is right.
func (u *usher) fifo(t *testing.T, right func(fifoState) bool) {
	t.Helper()
	eventually(t, longTime, func() error {
		var answer struct {
			Instances []struct{ Output fifoState }
		}
		text := u.adminGet(t, "/usher/policies/fifo/status")
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Instances) != 1 || !right(answer.Instances[0].Output) {
			return fmt.Errorf("status %s", text)
		}
		return nil
	})
}

// Three replicas share a key that takes 8 requests at a time, and 300 callers want it. One
// replica is killed while it runs and others wait, and one is stopped for longer than its
// lease and continued. The provider never gets more than 8 at once, everybody at
// the other two is served, in the order of their coming, no slot is lost, and nothing is left
// in the database.
func TestThreeHundredCallersThroughDeathAndSleep(t *testing.T) {
	t.Parallel()
	const (
		limit                = 8
		callers              = 300
		dies, sleeps, living = 0, 1, 2
	)
	p := startTurnstile(t)
	database := shareKey(t, p.url, limit)
	l := &line{waiting: make([]int, 3), rank: map[string]int{}, callers: map[string]*pending{}}
	for range 3 {
		l.replicas = append(l.replicas, startUsher(t, database.config))
	}
	database.have(t, 3)
	p.keep("")
	for i := range limit {
		tag := fmt.Sprintf("r%d-0.%d", i%3, i)
		l.rank[tag] = 0
		l.callers[tag] = newClient(l.replicas[i%3].url).begin(t, ask{tag: tag, whole: true})
	}
	p.runs(t, limit, "r")
	for rank := 1; len(l.callers) < callers; rank++ {
		l.join(t, rank, []int{dies, sleeps, living}[:min(3, callers-len(l.callers))]...)
	}

	if text := fifoStatus(t, l.replicas[living]); !strings.Contains(text, "key:openai/k1") {
		t.Errorf("usher fifo status says\n%s", text)
	}

	// The line moves until those of two replicas use all of the key. So the third has
	// nothing that others might get while it sleeps.
	p.keep("r0", "r2")
	p.runs(t, limit, "r0", "r2")
	killed := time.Now()
	l.replicas[dies].signal(t, syscall.SIGKILL)
	stopped := time.Now()
	l.replicas[sleeps].stop(t, syscall.SIGSTOP)
	database.have(t, 1)
	p.runs(t, limit, "r2") // what the dead one had is used again
	l.replicas[sleeps].stop(t, syscall.SIGCONT)
	database.have(t, 2)
	waits := l.unserved(p, "r1")
	l.replicas[living].fifo(t, func(s fifoState) bool { // what slept has brought back those who wait there
		return slices.ContainsFunc(s.Shared.Replicas, func(r fifoReplica) bool { return !r.Self && r.Waiting == waits })
	})
	back := time.Now()
	p.keep()
	for tag, caller := range l.callers {
		if strings.HasPrefix(tag, "r0") {
			continue
		}
		if got := caller.wait(t, longTime); got.ok() != nil {
			t.Errorf("request %s: %v", tag, got.ok())
		}
	}

	for _, found := range passed(p.seen(), l.rank, limit, func(x string, y passage) bool {
		return strings.HasPrefix(x, "r0") && y.start.After(killed) ||
			strings.HasPrefix(x, "r1") && y.start.After(stopped) && y.start.Before(back)
	}) {
		t.Error(found)
	}
	l.nothingLeft(t, p, database, limit)
}

// unserved returns how many of those whose tags begin so have not come through.
func (l *line) unserved(p *turnstile, prefix string) (n int) {
	for tag := range l.rank {
		if strings.HasPrefix(tag, prefix) {
			n++
		}
	}
	for _, s := range p.seen() {
		if strings.HasPrefix(s.tag, prefix) {
			n--
		}
	}
	return n
}

// nothingLeft checks that the whole key can be used by the last two replicas, and that nothing is
// left when they have ended.
func (l *line) nothingLeft(t *testing.T, p *turnstile, database shares, limit int) {
	t.Helper()
	p.keep("last")
	var last []*pending
	for i := range limit {
		last = append(last, newClient(l.replicas[1+i%2].url).begin(t, ask{tag: fmt.Sprint("last-", i), whole: true}))
	}
	p.runs(t, limit, "last")
	p.keep()
	for _, caller := range last {
		if got := caller.wait(t, longTime); got.ok() != nil {
			t.Error(got.ok())
		}
	}
	if p.most > limit {
		t.Errorf("the provider got %d at once, its limit is %d", p.most, limit)
	}
	for _, u := range l.replicas[1:] {
		u.fifo(t, func(s fifoState) bool { return s.Running+s.Waiting == 0 })
		u.signal(t, syscall.SIGTERM)
	}
	database.have(t, 0)
	startUsher(t, database.config).fifo(t, func(s fifoState) bool { // somebody new finds nothing
		return s.Shared.State == "up" && s.Running+s.Waiting+len(s.Scopes) == 0 && len(s.Shared.Replicas) == 1
	})
}

// fifoStatus returns what usher fifo status prints.
func fifoStatus(t *testing.T, u *usher) string {
	t.Helper()
	out, err := u.command("fifo", "status", "--address", strings.TrimPrefix(u.admin, "http://")).CombinedOutput()
	if err != nil {
		t.Errorf("usher fifo status: %v", errors.Join(err, errors.New(string(out))))
	}
	return string(out)
}

// What is wrong with the database of the store is found before anything runs, with
// its line. That it cannot be reached is no mistake.
func TestValidateLooksAtTheSharedStore(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := func(dsn string) setup {
		return setup{
			usher: "provider openai https://api.openai.com {\nkey k1 {env.E2E_KEY_1}\n}\nmodel gpt-4o openai\n" +
				"admit fifo {\nstore postgres\ndsn {env.E2E_DSN} " + here + "\n}",
			env: append(slices.Clone(keyEnv), "E2E_DSN="+dsn),
		}
	}
	mustNotValidate(t, config(server.DSN()+" dbname=nowhere password=sk-e2e-hidden"), `there is no database "nowhere"`)
	for _, dsn := range []string{server.DSN(), "postgres://usher@127.0.0.1:1/usher"} {
		u := newUsher(t, config(dsn))
		if out, err := u.command("validate", "--config", u.caddyfile()).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dsn, err, out)
		}
	}
}
