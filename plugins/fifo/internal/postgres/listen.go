package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The times of the listener.
const (
	// proveEvery is how long the listener believes in a silent connection.
	proveEvery = 15 * time.Second
	// proveWithin is how long its own notification may take to come.
	proveWithin = 2 * time.Second
	// listenAgain is how long it waits before it connects again.
	listenAgain = time.Second
)

// listen takes a turn whenever another replica tells that there is something to
// read.
func (s *Store) listen(ctx context.Context) {
	var told bool
	for ctx.Err() == nil {
		err := s.listenOnce(ctx)
		heard := s.hears(false)
		if ctx.Err() == nil && (!told || heard) {
			logger().Warn("no notifications: reading more often instead", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(listenAgain)):
		}
	}
}

func (s *Store) listenOnce(ctx context.Context) error {
	conn, err := s.db.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // is not used any more
	for {
		if err := s.prove(ctx, conn); err != nil {
			return err
		}
		s.hears(true)
		if err := s.hear(ctx, conn); err != nil {
			return err
		}
	}
}

// prove sends a notification from another connection, and waits for it. Behind a
// pooler the session that listens may be that of somebody else by now, and a
// dead connection does not tell.
func (s *Store) prove(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	if err := s.db.notify(ctx, nil); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload == "" {
			return err
		}
		s.heard(n.Payload)
	}
}

// hear listens until nothing has come for a while.
func (s *Store) hear(ctx context.Context, conn *pgx.Conn) error {
	for {
		wait, cancel := context.WithTimeout(ctx, proveEvery)
		n, err := conn.WaitForNotification(wait)
		silent := errors.Is(wait.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case err != nil && silent && !conn.IsClosed():
			return nil
		case err != nil:
			return err
		}
		s.heard(n.Payload)
	}
}

// heard applies an entry, or takes a turn if the payload names this replica or says
// that there is something to read.
func (s *Store) heard(payload string) {
	if strings.HasPrefix(payload, publishedWord) {
		p, err := parsePublished(payload)
		if err == nil {
			s.hearEntry(p)
			return
		}
		s.press() // it is too long, or of another version
		s.kick()
		return
	}
	s.mu.Lock()
	id := s.id
	s.mu.Unlock()
	for word := range strings.FieldsSeq(payload) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n != id && n != everybody[0] {
			continue
		}
		s.mu.Lock()
		s.left = s.left || n == everybody[0]
		s.pressLocked()
		s.mu.Unlock()
		s.kick()
	}
}

// hears notes whether notifications come, and reads what may have been missed. It
// returns whether they came before.
func (s *Store) hears(yes bool) (before bool) {
	s.mu.Lock()
	before = s.listening
	s.listening = yes
	s.mu.Unlock()
	if before != yes {
		s.kick()
	}
	return before
}
