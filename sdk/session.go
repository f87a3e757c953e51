package sdk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A session answers the calls of one carrier. One goroutine reads, and workers
// call the policies and answer: no policy holds up another call.
type session struct {
	server *server
	ctx    context.Context // ends with the carrier
	out    *wire.Outbox[*policypb.SessionAnswer]

	jobs    chan job       // to workers that have nothing to do
	workers sync.WaitGroup // but those that run an admission, which its tickets own

	mu    sync.Mutex       // guards what follows
	calls map[uint64]*call // that have not been answered
	idle  int              // workers
	ended bool             // no worker joins any more
}

// A call is one that has not been answered.
type call struct {
	id      uint64
	ctx     context.Context
	cancel  context.CancelFunc
	abandon func() // more than to cancel, if set
}

// A job is a call for a worker.
type job struct {
	*call
	decide *policypb.DecideRequest
	admit  *policypb.AdmitRequest
	report *policypb.Report
}

// Session serves one stream until it ends.
func (s *server) Session(stream policypb.PolicyService_SessionServer) error {
	err := s.serveSession(stream.Context(), wire.Stream{Stream: stream}, func() {})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// serveSession serves a session until its carrier ends, and returns why it did.
// The function done ends what the carrier still does.
func (s *server) serveSession(ctx context.Context, carrier wire.Carrier, done func()) error {
	ctx, cancel := context.WithCancel(ctx)
	se := &session{server: s, ctx: ctx, jobs: make(chan job), calls: make(map[uint64]*call)}
	se.out = wire.NewOutbox(func(answers []*policypb.SessionAnswer) (rest func()) { return carrier.Send(messages(answers)) }, reuse)
	s.addSession(se)
	defer s.removeSession(se)
	err := se.read(carrier)
	cancel()
	done()
	se.end()
	se.workers.Wait()
	se.out.Close()
	return err
}

func (s *server) addSession(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[se] = struct{}{}
}

func (s *server) removeSession(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, se)
}

// revoke tells the host that an instance no longer stands for a lease.
func (s *server) revoke(instance string, key ticketKey, why policy.Reason) {
	r := &policypb.Revoked{
		Instance: instance, Ticket: &policypb.Ticket{Id: key.id, Attempt: uint32(key.attempt)}, Reason: wire.Text(string(why)),
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.revoked != nil {
		s.revoked(r)
	}
	for se := range s.sessions {
		se.out.Put(&policypb.SessionAnswer{Revoked: r})
	}
}

// read takes up calls until the carrier ends.
func (se *session) read(carrier wire.Carrier) error {
	frame := &policypb.SessionRequest{}
	for {
		frame.ResetVT()
		if err := carrier.Receive(frame); err != nil {
			return err
		}
		for _, c := range frame.GetCalls() {
			se.takeUp(c)
			c.Decide = nil // it is the worker's, and the rest of c is used again
		}
	}
}

// takeUp begins a call. It does not block.
func (se *session) takeUp(c *policypb.SessionCall) {
	switch {
	case c.GetAbandon() != nil:
		se.abandon(c.GetAbandon().GetId())
	case c.GetPing() != nil:
		se.out.Put(&policypb.SessionAnswer{Id: c.GetId(), Done: &policypb.Done{}})
	default:
		ctx, cancel := context.WithCancel(se.ctx)
		if most := c.GetTimeoutUs(); most > 0 {
			ctx = due{ctx, time.Now().Add(time.Duration(min(most, maxTimeoutUs)) * time.Microsecond)}
		}
		j := job{&call{id: c.GetId(), ctx: ctx, cancel: cancel}, c.GetDecide(), c.GetAdmit(), c.GetReport()}
		se.mu.Lock()
		se.calls[j.id] = j.call
		se.mu.Unlock()
		select {
		case se.jobs <- j:
		default:
			se.workers.Add(1)
			go se.work(j)
		}
	}
}

// due is a context that tells its deadline. What ends it is that the host
// abandons the call then, so it needs no timer.
type due struct {
	context.Context
	at time.Time
}

// Deadline tells it.
func (d due) Deadline() (time.Time, bool) { return d.at, true }

// maxTimeoutUs is the longest time that is told, in microseconds: some 35 years.
const maxTimeoutUs = 1 << 50

// maxIdle is how many workers wait for calls.
var maxIdle = 8 * runtime.GOMAXPROCS(0)

// work carries out a call, and then others.
func (se *session) work(j job) {
	for {
		left := se.serve(j)
		if !se.rest(left) {
			return
		}
		select {
		case j = <-se.jobs:
			se.resume()
		case <-se.ctx.Done():
			se.workers.Done()
			return
		}
	}
}

// rest counts an idle worker. It reports false for one that is to end, since
// there are enough or the session has ended. One that has left the workers
// joins them again.
func (se *session) rest(left bool) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.ended || se.idle >= maxIdle {
		if !left {
			se.workers.Done()
		}
		return false
	}
	if left {
		se.workers.Add(1)
	}
	se.idle++
	return true
}

// resume counts an idle worker less.
func (se *session) resume() {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.idle--
}

// end lets no worker join any more.
func (se *session) end() {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.ended = true
}

// abandon ends a call that nobody waits for.
func (se *session) abandon(id uint64) {
	se.mu.Lock()
	c := se.calls[id]
	delete(se.calls, id)
	var more func()
	if c != nil {
		more = c.abandon
	}
	se.mu.Unlock()
	if c == nil {
		return
	}
	c.cancel()
	if more != nil {
		more()
	}
}

// answer sends the last answer to a call.
func (se *session) answer(c *call, a *policypb.SessionAnswer) {
	se.mu.Lock()
	delete(se.calls, c.id)
	se.mu.Unlock()
	c.cancel()
	a.Id = c.id
	se.out.Put(a)
}

// fail answers a call that failed.
func (se *session) fail(c *call, err error) {
	st := status.Convert(err)
	se.answer(c, &policypb.SessionAnswer{Failed: &policypb.Failed{Code: uint32(st.Code()), Message: wire.Text(st.Message())}})
}

// serve carries out a call. It reports whether the worker has left the others
// to run an admission.
func (se *session) serve(j job) (left bool) {
	switch {
	case j.decide != nil:
		return se.decide(j.call, j.decide)
	case j.admit != nil:
		return se.admit(j.call, j.admit)
	case j.report != nil:
		se.answerDone(j.call, se.server.report(j.ctx, j.report))
	default:
		se.fail(j.call, status.Error(codes.Unimplemented, "this call is not known"))
	}
	return false
}

func (se *session) answerDone(c *call, err error) {
	if err != nil {
		se.fail(c, err)
		return
	}
	se.answer(c, &policypb.SessionAnswer{Done: &policypb.Done{}})
}

// report carries out what r tells, in its order, and all of it whatever fails.
func (s *server) report(ctx context.Context, r *policypb.Report) error {
	var errs []error
	for _, o := range r.GetObserve() {
		_, err := s.Observe(ctx, o)
		errs = append(errs, err)
	}
	_, err := s.Release(ctx, r.GetRelease())
	errs = append(errs, err)
	for _, c := range r.GetCancel() {
		_, err := s.Cancel(ctx, c)
		errs = append(errs, err)
	}
	return cmp.Or(errs...)
}

func (se *session) decide(c *call, req *policypb.DecideRequest) (left bool) {
	resp := policypb.DecideResponseFromVTPool()
	begun, err := se.server.decide(c.ctx, req, resp)
	req.ReturnToVTPool()
	switch {
	case err != nil:
		resp.ReturnToVTPool()
		se.fail(c, err)
		return false
	case begun.admission == nil:
		se.answer(c, &policypb.SessionAnswer{Decide: resp})
		return false
	}
	p := &parking{session: se, call: c, resp: resp}
	p.timer = time.AfterFunc(parkAfter, func() { p.park(begun.admission) })
	return se.ask(begun, p, 0)
}

func (se *session) admit(c *call, req *policypb.AdmitRequest) (left bool) {
	begun, err := se.server.admit(c.ctx, req)
	if err != nil {
		se.fail(c, err)
		return false
	}
	h := &subscription{session: se, call: c}
	se.whenAbandoned(c, func() { begun.unlisten(h) })
	return se.ask(begun, h, int(req.GetSeenPosition()))
}

// whenAbandoned lets f be called when the host abandons the call, which it may
// have done already.
func (se *session) whenAbandoned(c *call, f func()) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.calls[c.id] == c {
		c.abandon = f
	}
}

// ask lets h hear of an admission. If the admission is fresh, this worker
// leaves the others to ask the policy, however long it takes.
func (se *session) ask(b begun, h hearer, seen int) (left bool) {
	b.listen(h, seen)
	if b.fresh {
		se.workers.Done()
		b.tickets.run(b.admission)
		return true
	}
	if _, settled := b.state(); settled && b.err != nil {
		b.tickets.forget(b.admission) // it was told
	}
	return false
}

// A parking is a Decide whose admission is not settled.
type parking struct {
	*session
	call  *call
	resp  *policypb.DecideResponse
	timer *time.Timer
}

// hear answers the call, whatever is heard first.
func (p *parking) hear(a *admission, position int, settled bool) (more bool) {
	p.timer.Stop()
	p.resp.Admission, p.resp.Trace = a.answer(position, settled), a.trace
	p.answer(p.call, &policypb.SessionAnswer{Decide: p.resp})
	return false
}

// park answers that the request waits, if nothing was heard in time.
func (p *parking) park(a *admission) {
	if a.unlisten(p) {
		position, settled := a.state()
		p.hear(a, position, settled)
	}
}

// A subscription is an Admit. It is answered whenever there is news.
type subscription struct {
	*session
	call *call
}

func (s *subscription) hear(a *admission, position int, settled bool) (more bool) {
	answer := &policypb.SessionAnswer{Id: s.call.id, Admit: &policypb.AdmitResponse{Admission: a.answer(position, settled), Trace: a.trace}}
	if settled {
		s.answer(s.call, answer)
		return false
	}
	s.out.Put(answer)
	return true
}

// messages returns answers in messages.
func messages(answers []*policypb.SessionAnswer) iter.Seq[any] {
	return func(yield func(any) bool) {
		frame := &policypb.SessionResponse{}
		for part := range slices.Chunk(answers, wire.MaxBatch) {
			if frame.Answers = part; !yield(frame) {
				return
			}
		}
	}
}

// reuse puts what answers hold back into its pools.
func reuse(answers []*policypb.SessionAnswer) {
	for _, a := range answers {
		a.Decide.ReturnToVTPool()
	}
}
