package keys

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/usherproxy/usher/plugins/keys/internal/board"
)

// tellLocked makes a fact that has changed here known to other replicas, if
// there is a store for that.
func (s *state) tellLocked(sub *subject, f fact) {
	if s.tell == nil {
		return
	}
	w, ok := sub.writeLocked(f)
	if !ok {
		return
	}
	row, err := rowOf(sub.id, f, w)
	if err != nil {
		slog.Error("tell what is known of a key", "policy", "keys", "provider", sub.id.Provider, "fact", f, "error", err)
		return
	}
	s.tell(row)
}

// never is later than any fact matters.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func rowOf(id subjectID, f fact, w written) (board.Row, error) {
	subject, err := json.Marshal(id)
	if err != nil {
		return board.Row{}, err
	}
	value, err := json.Marshal(w.value)
	if err != nil {
		return board.Row{}, err
	}
	expires := never
	if !w.until.IsZero() && w.until.Before(never) {
		expires = w.until.Add(retention)
	}
	return board.Row{
		Subject: string(subject), Fact: string(f), Value: value, Expires: expires,
		Rank: [2]int64{nanos(w.rank[0]), nanos(w.rank[1])}, Said: nanos(w.said), Cleared: nanos(w.cleared),
	}, nil
}

// nanos returns t in Unix nanoseconds, and 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// hear takes in what other replicas told.
func (s *state) hear(now time.Time, rows []board.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := map[*subject]bool{}
	for _, row := range rows {
		var id subjectID
		err := json.Unmarshal([]byte(row.Subject), &id)
		if err == nil {
			sub := s.subjectLocked(now, id)
			var cleared time.Time
			if row.Cleared != 0 {
				cleared = time.Unix(0, row.Cleared)
			}
			var isNew bool
			isNew, err = sub.mergeLocked(fact(row.Fact), row.Value, cleared)
			news[sub] = news[sub] || isNew
		}
		if err != nil { // was told by a replica of another version
			slog.Warn("cannot read what another replica knows of a key", "policy", "keys", "fact", row.Fact, "error", err)
		}
	}
	for sub, isNew := range news {
		if isNew {
			sub.publishLocked()
			if sub.id.early() {
				s.settleLocked(now, sub)
			}
		}
	}
}

// A storeID names a store for several replicas.
type storeID struct{ dsn, schema string }

// stores are the states that instances share with other replicas, each once, so
// that a reload of the configuration finds its state as it was. The zero value
// has none.
type stores struct {
	mu   sync.Mutex
	used map[storeID]*usedStore
}

// A usedStore is closed when its last user has gone.
type usedStore struct {
	state *state
	board *board.Board
	users int
}

// open returns the state that is shared in a store, and how to end its use.
func (p *Plugin) open(id storeID) (*usedStore, func(context.Context) error, error) {
	p.stores.mu.Lock()
	defer p.stores.mu.Unlock()
	u := p.stores.used[id]
	if u == nil {
		state := newState()
		b, err := board.Open(id.dsn, id.schema, func(rows []board.Row) { state.hear(p.Clock(), rows) })
		if err != nil {
			return nil, nil, err
		}
		state.mu.Lock()
		state.tell = b.Tell
		state.mu.Unlock()
		u = &usedStore{state: state, board: b}
		if p.stores.used == nil {
			p.stores.used = map[storeID]*usedStore{}
		}
		p.stores.used[id] = u
	}
	u.users++
	return u, func(ctx context.Context) error { return p.leave(ctx, id) }, nil
}

func (p *Plugin) leave(ctx context.Context, id storeID) error {
	p.stores.mu.Lock()
	defer p.stores.mu.Unlock()
	u := p.stores.used[id]
	if u.users--; u.users > 0 {
		return nil
	}
	delete(p.stores.used, id)
	return u.board.Close(ctx)
}
