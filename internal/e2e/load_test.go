package e2e_test

import (
	"context"
	"fmt"
	"sync"
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
}

// startLoad starts n clients. They end with end.
func startLoad(t *testing.T, c *client, n int) *load {
	t.Helper()
	l := &load{client: c, stop: make(chan struct{})}
	for i := range n {
		l.all.Go(func() { l.run(fmt.Sprintf("load-%d", i), i%4 == 3) })
	}
	return l
}

func (l *load) run(tag string, whole bool) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), longTime)
		err := l.client.chat(ctx, ask{tag: tag, whole: whole}).ok()
		cancel()
		l.mu.Lock()
		l.served++
		if err != nil {
			l.failed = append(l.failed, fmt.Errorf("%s: %w", tag, err))
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// end lets each client finish its request, and checks that none has failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.all.Wait()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed; the first: %v", len(l.failed), l.served, l.failed[0])
	}
	t.Logf("%d requests", l.served)
}
