package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// load is a number of clients that send one request after the other.
type load struct {
	client *client
	stop   chan struct{}
	all    sync.WaitGroup

	mu     sync.Mutex
	served int
	failed []error
	lost   []string // tags of requests whose connection ended before any answer
}

// startLoad starts n clients.
func startLoad(t *testing.T, c *client, n int) *load {
	t.Helper()
	l := &load{client: c, stop: make(chan struct{})}
	for i := range n {
		l.all.Go(func() { l.run(fmt.Sprintf("load-%d", i), i%4 == 3) })
	}
	return l
}

func (l *load) run(name string, whole bool) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		tag := fmt.Sprintf("%s-%d", name, i)
		ctx, cancel := context.WithTimeout(context.Background(), longTime)
		got := l.client.chat(ctx, ask{tag: tag, whole: whole})
		cancel()
		l.count(tag, got)
		if got.ok() != nil && !got.lost() {
			return
		}
	}
}

// lost tells whether the connection ended before any answer.
func (a answer) lost() bool {
	return a.status == 0 && (errors.Is(a.err, syscall.ECONNRESET) || errors.Is(a.err, io.EOF))
}

func (l *load) count(tag string, got answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served++
	if got.lost() {
		l.lost = append(l.lost, tag)
	} else if err := got.ok(); err != nil {
		l.failed = append(l.failed, fmt.Errorf("%s: %w", tag, err))
	}
}

// end lets each client finish its request, and checks that none has failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.wait(t)
	if len(l.lost) > 0 {
		t.Errorf("the connections of %v ended before an answer", l.lost)
	}
}

// endReloaded is like end after reloads. Caddy serves each configuration from a
// socket of its own, and what has just connected to the old one is lost with
// it, with reverse_proxy as with Usher. So a connection may end before its
// request has been seen.
func (l *load) endReloaded(t *testing.T, p *provider) {
	t.Helper()
	l.wait(t)
	started := p.started(t)
	for _, tag := range l.lost {
		if slices.Contains(started, tag) {
			t.Errorf("%s got no answer though it had been served", tag)
		}
	}
	if len(l.lost)*20 > l.served {
		t.Errorf("%d of %d requests got no answer", len(l.lost), l.served)
	}
}

func (l *load) wait(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.all.Wait()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed; the first: %v", len(l.failed), l.served, l.failed[0])
	}
	t.Logf("%d requests", l.served)
}
