package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// errLost says that this process is no replica any more, or that the log is not
// the one that it has appended to.
var errLost = errors.New("the lease of this replica has ended")

// A loop is what the goroutine that speaks with the database knows.
type loop struct {
	*Store
	migrated bool
	batch    *batch // of the step that has to be tried again, or nil
	op       int64

	restUntil time.Time // see gather

	failing time.Time // since when every try has failed, or zero
	tries   int       // since then
	told    []string  // why, since then
}

// run takes a turn whenever there is something to say or to read.
func (s *Store) run(ctx context.Context) {
	l := &loop{Store: s}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			if l.tries > 1 && !l.invited() { // the time of the next try stands
				continue
			}
		case <-timer.C:
			s.press()
		}
		for {
			l.gather(ctx)
			began := time.Now()
			err := l.turn(ctx)
			if ctx.Err() != nil {
				return
			}
			l.note(began, err)
			if err != nil || !l.more() {
				break
			}
		}
		timer.Reset(l.pause())
	}
}

const (
	// gatherFor is how long a step waits for more to say, if nothing is urgent.
	gatherFor = 2 * time.Millisecond
	// restMost is how long a replica rests at most between two steps that others
	// hear.
	restMost = 5 * time.Millisecond
)

// gather waits a moment for more to say, if all who ask have to wait anyway and
// nobody waits for what there is to say. While others wait it also rests after a
// step for as long as that took: what is said together costs less, so a database
// or a machine that is busy has an answer for all of them sooner.
func (l *loop) gather(ctx context.Context) {
	sleep(ctx, time.Until(l.restUntil), nil)
	l.mu.Lock()
	wait := l.crowded && !l.pressing && l.machine != nil
	l.mu.Unlock()
	if wait {
		sleep(ctx, gatherFor, l.pressed)
	}
}

// sleep waits until d has passed or ctx ends or enough says so.
func sleep(ctx context.Context, d time.Duration, enough <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-enough:
	}
}

// press makes the next step come soon.
func (s *Store) press() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pressLocked()
}

func (s *Store) pressLocked() {
	s.pressing = true
	select {
	case s.pressed <- struct{}{}:
	default:
	}
}

// invited reports, once, whether another replica has left, which may have kept
// this one from joining.
func (l *loop) invited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.left
	l.left = false
	return was && l.machine == nil
}

// turn joins, or takes one step.
func (l *loop) turn(ctx context.Context) error {
	if l.machine == nil {
		return l.join(ctx)
	}
	if l.batch == nil {
		l.review()
		l.op++
		l.batch = l.take(l.op)
	}
	after, seq := l.position()
	entries, end, began, err := l.step(ctx, seq)
	if err != nil {
		if ended(err) {
			l.fence()
			l.lose()
		}
		return err
	}
	wake, err := l.read(entries, after, l.batch)
	if err != nil {
		l.lose()
		return errors.Join(err, end())
	}
	if l.batch.publish {
		l.restUntil = time.Now().Add(min(time.Since(began), restMost))
	}
	l.inform(ctx, wake, end)
	l.batch = nil
	l.believe(began)
	return nil
}

// position returns the last entry that was read, or nil if there is none, and its
// number.
func (l *loop) position() (*entry, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machine.last, l.machine.seq
}

// inform ends a step, and wakes replicas unless they hear its entry itself.
func (l *loop) inform(ctx context.Context, wake []int64, end func() error) {
	if !l.batch.publish {
		_ = end() // there is nothing left of it
		l.notify(ctx, wake)
		return
	}
	l.done.Go(func() {
		if err := end(); err != nil {
			l.notify(ctx, wake)
		}
	})
}

// setClock looks at the database's clock. The entries of others may have been
// read long after they were made.
func (s *Store) setClock() {
	offset := time.Until(s.machine.at)
	if offset > s.offset || s.machine.last.Replica == s.id {
		s.offset = offset
	}
}

// step takes a step that is read soon after it was taken: a lease that was
// granted long ago may have ended meanwhile.
func (l *loop) step(ctx context.Context, after int64) (entries []entry, end func() error, began time.Time, err error) {
	for {
		began = time.Now()
		entries, end, err = l.db.step(ctx, step{
			me: l.id, op: l.batch.op, after: after, tick: l.tick(), commands: l.batch.commands, publish: l.batch.publish,
		}, l.until(StepTimeout))
		if err != nil || time.Since(began) < believeFor {
			return entries, end, began, err
		}
		_ = end() // the next one tells
	}
}

// until returns the time until this replica stands for nothing any more, or most
// if that is less, or past.
func (l *loop) until(most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := time.Until(l.standsUntil()); d > 0 {
		return min(d, most)
	}
	return most
}

// believe notes that the lease was renewed after that instant.
func (l *loop) believe(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.believeUntil, l.readAt = began.Add(believeFor), began
}

// tick returns when a window has room again for somebody of this process, in
// microseconds, or 0.
func (l *loop) tick() int64 {
	if at, ok := l.nextTick(); ok {
		return at.Add(time.Microsecond - 1).UnixMicro()
	}
	return 0
}

func (l *loop) nextTick() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 0 {
		return time.Time{}, false
	}
	return l.machine.queue.Next()
}

// join makes this process a replica, and brings back what it runs and who waits.
func (l *loop) join(ctx context.Context) error {
	if err := l.migrate(ctx); err != nil {
		return err
	}
	began := time.Now()
	joinCtx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	id, seq, data, err := l.db.join(joinCtx, l.id)
	if err != nil {
		return err
	}
	m, err := loadMachine(seq, data)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.machine, l.batch, l.pending, l.readAt = id, m, nil, nil, began
	l.loseCredits() // and what was noted since
	for _, c := range l.inOrder() {
		switch {
		case c.state != running:
			l.asks(c)
			l.send(c.again())
		case l.fenced:
			c.sent = true
			l.send(c.resume())
		default:
			l.send(c.again())
		}
	}
	l.fenced = false
	return nil
}

// migrate brings the schema to the newest version, once.
func (l *loop) migrate(ctx context.Context) error {
	if l.migrated {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if err := migrate(ctx, l.db.pool, l.db.schema); err != nil {
		return err
	}
	l.migrated = true
	return nil
}

// fence notes that others have taken this replica for dead.
func (l *loop) fence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fenced = true
}

// lose gives up the machine, so that the next turn joins.
func (l *loop) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.machine, l.batch = nil, nil
	clear(l.ahead)
	l.loseCredits()
}

// note notes how a turn went that began then. Who asks of a store that is out of reach is
// refused; who waits already goes on, and who runs, too.
func (l *loop) note(began time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.away
	defer func() { l.health.turn(began, err, l.away != was) }()
	if err == nil {
		if l.away {
			logger().Info("the store of leases is back")
		}
		l.away, l.failing, l.tries, l.told = false, time.Time{}, 0, nil
		return
	}
	l.tries++
	l.doubt(err)
	if l.failing.IsZero() {
		l.failing = began
	}
	if time.Since(l.failing) < awayAfter && otherRules(err) == 0 {
		return
	}
	l.tell(err)
	l.away = true
	for _, c := range l.calls {
		if c.state == asked {
			l.drop(c, unavailable())
		}
	}
}

// tellMost is how many reasons of one outage are told.
const tellMost = 10

// tell tells why the store is out of reach, each reason once in an outage.
func (l *loop) tell(err error) {
	why := l.db.explain(err).Error()
	if slices.Contains(l.told, why) || len(l.told) == tellMost {
		return
	}
	l.told = append(l.told, why)
	logger().Error("the store of leases is out of reach", "error", why)
}

// review returns credits that are not used.
func (l *loop) review() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.credits.review(time.Now())
}

// more reports whether there is something to say already.
func (l *loop) more() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)+len(l.credits.owing) > 0 && !time.Now().Before(l.holdUntil) || l.machine == nil
}

// The pauses between turns that nobody asked for.
const (
	pollEvery  = time.Second            // while somebody waits or there are credits, and a notification would wake us
	pollOften  = 100 * time.Millisecond // while that is so, and none would
	retryFirst = 25 * time.Millisecond
	retryMost  = time.Second
	tickAgain  = 2 * time.Millisecond
)

// pause returns how long to wait for something to say.
func (l *loop) pause() time.Duration {
	if l.tries > 0 {
		return l.until(jitter(min(retryMost, retryFirst<<min(l.tries-1, 10))))
	}
	l.mu.Lock()
	waits, listening, held := l.waiting+len(l.credits.of) > 0, l.listening, time.Until(l.holdUntil)
	l.mu.Unlock()
	if held > 0 {
		return min(held, pollEvery)
	}
	switch {
	case !waits:
		return renewEvery
	case !listening:
		return l.untilTick(jitter(pollOften))
	}
	return l.untilTick(jitter(pollEvery))
}

// untilTick returns the time until the next tick, or most if that is less.
func (l *loop) untilTick(most time.Duration) time.Duration {
	if at, ok := l.nextTick(); ok {
		return min(most, max(time.Until(at)-l.offset, tickAgain))
	}
	return most
}

// jitter returns a duration between the half of d and d and a half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
