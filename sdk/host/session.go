package host

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// These are of [Info.Capabilities]. CapabilitySession says that the plugin
// serves sessions, and CapabilityFrames that it takes one as frames, too.
const (
	CapabilitySession = wire.CapabilitySession
	CapabilityFrames  = wire.CapabilityFrames
)

// A session makes calls over one carrier. One goroutine reads; who calls writes.
type session struct {
	carrier wire.Carrier
	out     *wire.Outbox[*policypb.SessionCall]
	ended   chan struct{} // closed when the carrier has ended

	mu    sync.Mutex // guards what follows
	last  uint64     // id
	calls map[uint64]*pending
	err   error // why the carrier has ended
}

// pending is a call that waits for answers. Of those that come in a row, only
// the last one counts.
type pending struct {
	news  chan struct{} // has room for one
	fresh bool          // answer has not been taken
	answer
}

// An answer is one answer to a call. It is empty if that is done.
type answer struct {
	failed *policypb.Failed
	decide *policypb.DecideResponse
	admit  *policypb.AdmitResponse
}

// last reports whether no other answer follows.
func (a answer) last() bool { return a.admit.GetAdmission().GetWaiting() == nil }

// pendings are used again and again: their channels are what a call costs.
var pendings = sync.Pool{New: func() any { return &pending{news: make(chan struct{}, 1)} }}

// OpenSession opens a session, which from then on carries Decide, Wait, Report
// and Ping, and over which leases are revoked. It lasts as long as the
// connection does, and Ended tells its end; it is opened once, before any other
// call but Info.
func (c *Client) OpenSession() error {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.rpc.Session(ctx)
	if err != nil {
		cancel()
		return err
	}
	c.open(wire.Stream{Stream: stream}, cancel)
	return nil
}

// OpenFrames is like OpenSession for a session that is carried by a connection
// of its own, to the address on which the plugin serves gRPC. It is for a plugin
// with [CapabilityFrames]. The client closes conn when the session has ended.
func (c *Client) OpenFrames(conn net.Conn) error {
	if _, err := io.WriteString(conn, wire.FramesPreface); err != nil {
		return errors.Join(err, conn.Close())
	}
	c.open(wire.NewFrames(conn), func() { _ = conn.Close() }) // of which nothing is left to be lost
	return nil
}

// open begins a session. The function done ends its carrier for good.
func (c *Client) open(carrier wire.Carrier, done func()) {
	s := &session{carrier: carrier, ended: make(chan struct{}), calls: make(map[uint64]*pending)}
	s.out = wire.NewOutbox(func(calls []*policypb.SessionCall) (rest func()) { return carrier.Send(messages(calls)) }, reuse)
	go func() {
		err := s.read(c.revoked)
		done()
		s.end(err)
	}()
	c.session = s
}

// Ended is closed when the session has ended: the process is gone, or must not
// be trusted any more. It is nil without a session.
func (c *Client) Ended() <-chan struct{} {
	if c.session == nil {
		return nil
	}
	return c.session.ended
}

// Ping asks whether the process lives.
func (c *Client) Ping(ctx context.Context) error {
	if c.session == nil {
		_, err := c.rpc.GetInfo(ctx, &policypb.GetInfoRequest{})
		return err
	}
	_, err := c.session.call(ctx, &policypb.SessionCall{Ping: &policypb.Ping{}})
	return err
}

// call makes a call of one answer.
func (s *session) call(ctx context.Context, c *policypb.SessionCall) (answer, error) {
	p, err := s.begin(ctx, c)
	if err != nil {
		return answer{}, err
	}
	return s.next(ctx, c.GetId(), p)
}

// begin sends a call, which will be abandoned when ctx ends.
func (s *session) begin(ctx context.Context, c *policypb.SessionCall) (*pending, error) {
	if deadline, ok := ctx.Deadline(); ok {
		c.TimeoutUs = uint64(max(time.Until(deadline).Microseconds(), 1))
	}
	p := pendings.Get().(*pending)
	if err := s.expect(c, p); err != nil {
		return nil, err
	}
	s.out.Put(c)
	return p, nil
}

// expect gives a call its ID, and lets p get its answers.
func (s *session) expect(c *policypb.SessionCall, p *pending) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.last++
	c.Id = s.last
	s.calls[c.Id] = p
	return nil
}

// next waits for the next answer to a call. With an error or the last answer
// the call has ended, and p must not be used any more.
func (s *session) next(ctx context.Context, id uint64, p *pending) (answer, error) {
	for {
		select {
		case <-p.news:
		case <-s.ended:
			select {
			case <-p.news: // it came before the end
			default:
				return answer{}, s.err
			}
		case <-ctx.Done():
			s.abandon(id)
			return answer{}, status.FromContextError(ctx.Err()).Err()
		}
		s.mu.Lock()
		a, fresh := p.answer, p.fresh
		p.answer, p.fresh = answer{}, false
		s.mu.Unlock()
		if !fresh {
			continue // it was taken together with the one before
		}
		if a.last() {
			select {
			case <-p.news: // of the answer that was just taken
			default:
			}
			pendings.Put(p)
		}
		if a.failed != nil {
			return answer{}, status.Error(codes.Code(a.failed.GetCode()), a.failed.GetMessage())
		}
		return a, nil
	}
}

// abandon forgets a call. The plugin hears of it before anything that is sent
// afterwards, such as a Cancel.
func (s *session) abandon(id uint64) {
	s.mu.Lock()
	_, ok := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if ok {
		s.out.Put(&policypb.SessionCall{Abandon: &policypb.Abandon{Id: id}})
	}
}

// read takes answers until the carrier ends, and returns why it did. It does not
// wait for those who get them.
func (s *session) read(revoked func(*policypb.Revoked)) error {
	frame := &policypb.SessionResponse{}
	for {
		frame.ResetVT()
		if err := s.carrier.Receive(frame); err != nil {
			return err
		}
		for _, a := range frame.GetAnswers() {
			if r := a.GetRevoked(); r != nil {
				revoked(r)
				continue
			}
			s.take(a.GetId(), answer{a.GetFailed(), a.GetDecide(), a.GetAdmit()})
			a.Decide = nil // it is the caller's, and the rest of a is used again
		}
	}
}

// take hands an answer to its call, if that is known.
func (s *session) take(id uint64, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.calls[id]
	if p == nil {
		return
	}
	if a.last() {
		delete(s.calls, id)
	}
	p.answer, p.fresh = a, true
	select {
	case p.news <- struct{}{}:
	default: // it has not taken the one before, and will see this one
	}
}

// end lets all calls fail. To their callers the process is gone.
func (s *session) end(err error) {
	s.mu.Lock()
	s.err = status.Errorf(codes.Unavailable, "the session has ended: %v", err)
	s.calls = nil
	s.mu.Unlock()
	close(s.ended)
	s.out.Close()
}

// messages returns calls in messages.
func messages(calls []*policypb.SessionCall) iter.Seq[any] {
	return func(yield func(any) bool) {
		frame := &policypb.SessionRequest{}
		for part := range batches(calls) {
			if frame.Calls = part; !yield(frame) {
				return
			}
		}
	}
}

// reuse puts what calls hold back into its pools.
func reuse(calls []*policypb.SessionCall) {
	for _, c := range calls {
		c.Decide.ReturnToVTPool()
		c.Decide = nil
	}
}

// batches returns calls in parts that fit into one message each. A call with a
// body stands alone: it may be large.
func batches(calls []*policypb.SessionCall) iter.Seq[[]*policypb.SessionCall] {
	return func(yield func([]*policypb.SessionCall) bool) {
		for len(calls) > 0 {
			n := 0
			for n < len(calls) && n < wire.MaxBatch && !hasBody(calls[n]) {
				n++
			}
			n = max(n, 1)
			if !yield(calls[:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}

func hasBody(c *policypb.SessionCall) bool {
	return len(c.GetDecide().GetRequest().GetBody()) > 0 || len(c.GetAdmit().GetRequest().GetBody()) > 0
}
