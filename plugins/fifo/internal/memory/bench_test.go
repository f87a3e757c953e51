package memory_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usherproxy/usher/plugins/fifo/internal/memory"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// site returns a request of a caller as a site asks: three scopes of its own,
// and three for each of its candidates.
func site(caller string, keys int) *policy.AdmitRequest {
	const plenty = 1 << 40
	concurrency := func(id string) policy.Scope {
		return policy.Scope{ID: id, Kind: policy.ScopeConcurrency, Limit: plenty}
	}
	req := &policy.AdmitRequest{Attempt: 1, Request: &policy.Request{
		ID: caller, InputTokens: 100,
		Scopes: []policy.Scope{concurrency("caller:" + caller), concurrency("group:g"), concurrency("fleet")},
	}}
	for i := range keys {
		req.Candidates = append(req.Candidates, policy.Candidate{
			ID:     fmt.Sprintf("openai/k%d/gpt-4o", i),
			Scopes: []policy.Scope{concurrency("provider:openai"), concurrency(fmt.Sprintf("key:openai/k%d", i)), concurrency("model:gpt-4o")},
		})
	}
	return req
}

func admitAndRelease(b *testing.B, s *memory.Store, req *policy.AdmitRequest) {
	lease, err := s.Admit(context.Background(), req, queue.Rules{})
	if err != nil {
		b.Fatal(err)
	}
	_ = lease.Release(context.Background(), policy.Outcome{Usage: &policy.Usage{InputTokens: 50}})
}

func BenchmarkAdmitAndRelease(b *testing.B) {
	for _, keys := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s, req := memory.New(), site("alice", keys)
			b.ReportAllocs()
			for b.Loop() {
				admitAndRelease(b, s, req)
			}
		})
	}
	b.Run("rates", func(b *testing.B) {
		s, req := memory.New(), site("alice", 1)
		scopes := &req.Candidates[0].Scopes
		*scopes = append(*scopes,
			policy.Scope{ID: "key:openai/k0", Kind: policy.ScopeRequests, Limit: 1 << 40, Window: time.Minute},
			policy.Scope{ID: "key:openai/k0", Kind: policy.ScopeTokens, Limit: 1 << 40, Window: time.Minute})
		b.ReportAllocs()
		for b.Loop() {
			admitAndRelease(b, s, req)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		s := memory.New()
		var callers atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			req := site(fmt.Sprint("caller", callers.Add(1)), 1)
			for pb.Next() {
				admitAndRelease(b, s, req)
			}
		})
	})
}

// A thousand callers, each with a scope and a lease of its own, and a key each.
func BenchmarkThousandScopes(b *testing.B) {
	s := memory.New()
	reqs := make([]*policy.AdmitRequest, 1000)
	for i := range reqs {
		reqs[i] = site(fmt.Sprint("caller", i), 1)
		reqs[i].Candidates[0].Scopes[1].ID = fmt.Sprint("key:", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		admitAndRelease(b, s, reqs[i%len(reqs)])
	}
}

// One lease ends, the call that waits longest gets the next, and one more waits.
func BenchmarkHandOff(b *testing.B) {
	for _, waiting := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c := startCrowd(waiting)
			lease := <-c.leases
			c.queued.Wait()
			b.ReportAllocs()
			for b.Loop() {
				_ = lease.Release(context.Background(), policy.Outcome{})
				lease = <-c.leases
			}
			c.stop(lease)
		})
	}
}

// A crowd is a number of calls for one scope, each of which asks again as soon
// as its lease was taken from leases.
type crowd struct {
	store    *memory.Store
	leases   chan policy.Lease
	arrivals atomic.Int64
	queued   sync.WaitGroup // until each has waited once
	calls    sync.WaitGroup
	cancel   context.CancelFunc
}

func startCrowd(size int) *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{store: memory.New(), leases: make(chan policy.Lease), cancel: cancel}
	c.queued.Add(size)
	for range size {
		c.calls.Go(func() { c.call(ctx) })
	}
	return c
}

func (c *crowd) call(ctx context.Context) {
	queued := sync.OnceFunc(c.queued.Done)
	for {
		req := ask(int(c.arrivals.Add(1)), policy.Scope{ID: "fleet", Kind: policy.ScopeConcurrency, Limit: 1})
		req.Waiting = func(int) { queued() }
		lease, err := c.store.Admit(ctx, req, queue.Rules{})
		if err != nil {
			return
		}
		c.leases <- lease
	}
}

func (c *crowd) stop(lease policy.Lease) {
	c.cancel()
	go func() {
		c.calls.Wait()
		close(c.leases)
	}()
	for ; lease != nil; lease = <-c.leases {
		_ = lease.Release(context.Background(), policy.Outcome{})
	}
}
