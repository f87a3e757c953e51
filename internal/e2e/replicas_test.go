package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

// startReplicas starts several Ushers that share one database and one key, which takes
// so many requests at a time.
func startReplicas(t *testing.T, n, limit int, options string) (*provider, []*usher) {
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
	p := startProvider(t, fmt.Sprintf("key k1 sk-e2e-one {\nconcurrency %d\n}\n%s", limit, options))
	config := setup{env: append(slices.Clone(keyEnv), "E2E_DSN="+server.DSN()), usher: fmt.Sprintf(`provider openai %s {
		key k1 {env.E2E_KEY_1} {
			limit concurrency %d
		}
	}
	model gpt-4o openai
	admit fifo {
		store postgres
		dsn {env.E2E_DSN}
	}`, p.url, limit)}
	replicas := make([]*usher, n)
	for i := range replicas {
		replicas[i] = startUsher(t, config)
	}
	return p, replicas
}

// Three replicas share a key that takes 8 requests at a time. One of them is killed, and one is
// stopped for longer than its lease and continued: the provider never gets more
// than 8 at once, everybody else is served, in order, and no slot is lost.
func TestReplicasKeepALimitThroughDeathAndSleep(t *testing.T) {
	t.Parallel()
	const (
		limit = 8
		each  = 12 // waiting requests of each replica
		sleep = 14 * time.Second
	)
	p, replicas := startReplicas(t, 3, limit, "latency 20ms\ntokens 100000\ntokens_per_second 200")
	dies, sleeps, lives := replicas[0], replicas[1], replicas[2]
	var streams []*pending
	for i := range limit {
		u := []*usher{dies, lives}[i%2]
		streams = append(streams, newClient(u.url).begin(t, ask{tag: fmt.Sprint("stream-", i)}))
	}
	p.running(t, longTime, limit)
	var waits []*pending
	for i, u := range replicas {
		c := newClient(u.url)
		for n := range each {
			waits = append(waits, c.begin(t, ask{tag: fmt.Sprintf("r%d-%02d", i, n), tokens: 4}))
			u.waiting(t, n+1)
		}
	}
	if text := fifoStatus(t, lives); !strings.Contains(text, "key:openai/k1") {
		t.Errorf("usher fifo status says\n%s", text)
	}

	dies.signal(t, syscall.SIGKILL)
	sleeps.stop(t, syscall.SIGSTOP)
	time.Sleep(sleep)
	sleeps.stop(t, syscall.SIGCONT)
	for i, w := range waits[each:] {
		if err := w.wait(t, longTime).ok(); err != nil {
			t.Errorf("request %d of those that must be served: %v", i, err)
		}
	}
	inOrder(t, p, "r2-", limit)
	for _, s := range streams {
		s.leave()
	}
	p.running(t, longTime, 0)
	for i := range limit {
		u := []*usher{sleeps, lives}[i%2]
		newClient(u.url).begin(t, ask{tag: fmt.Sprint("last-", i)})
	}
	p.running(t, longTime, limit)
	p.limitsKept(t)
}

// inOrder checks that the requests whose tags begin so have reached the provider in
// the order of their tags, but for those that are on their way at the same time.
func inOrder(t *testing.T, p *provider, prefix string, slack int) {
	t.Helper()
	var tags []string
	for _, tag := range p.started(t) {
		if strings.HasPrefix(tag, prefix) {
			tags = append(tags, tag)
		}
	}
	for i, tag := range slices.Sorted(slices.Values(tags)) {
		if at := slices.Index(tags, tag); at-i > slack || i-at > slack {
			t.Errorf("%s was served as number %d of %v", tag, at, tags)
		}
	}
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
