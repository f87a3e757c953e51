package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// A step is what a replica says to the database, and from where it reads.
type step struct {
	me, op, after, tick int64
	commands            []byte

	// publish tells the entry to those who listen, in the same round trip.
	publish bool
}

// step takes a step, within some time. The step is done when it returns; end has to
// be called then, and returns when the entry was published, if it was to be.
func (db *database) step(ctx context.Context, s step, within time.Duration) (entries []entry, end func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	p := conn.Conn().PgConn().StartPipeline(ctx)
	end = func() error {
		defer cancel()
		defer conn.Release()
		return p.Close()
	}
	if entries, err = db.exchange(p, conn.Conn().TypeMap(), s); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return entries, end, nil
}

// The forms of what is sent and received.
const (
	asText   int16 = 0
	asBinary int16 = 1
)

func (db *database) exchange(p *pgconn.Pipeline, types *pgtype.Map, s step) ([]entry, error) {
	var numbers [][]byte
	for _, n := range []int64{s.me, s.op, s.after, s.tick} {
		numbers = append(numbers, strconv.AppendInt(nil, n, 10))
	}
	p.SendQueryParams(expand(`SELECT * FROM $schema.step($1, $2, $3, $4, $5, $6)`, db.schema),
		append(numbers, []byte(lease.String()), append([]byte{}, s.commands...)), // nil is NULL
		[]uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID, pgtype.IntervalOID, pgtype.ByteaOID},
		[]int16{asText, asText, asText, asText, asText, asBinary}, []int16{asBinary})
	p.SendPipelineSync()
	if s.publish {
		p.SendQueryParams(expand(`SELECT $schema.publish($1, $2, $3, $4)`, db.schema), append(numbers[:3:3], []byte(db.topic())),
			[]uint32{pgtype.Int8OID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID}, nil, nil)
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		return nil, err
	}
	result, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	reader, ok := result.(*pgconn.ResultReader)
	if !ok {
		return nil, fmt.Errorf("a step has led to %T", result)
	}
	entries, err := pgx.CollectRows(pgx.RowsFromResultReader(types, reader), pgx.RowToStructByPos[entry])
	if err != nil {
		return nil, err
	}
	_, err = p.GetResults() // of the commit
	return entries, err
}

// A published entry is one that its replica has told to all that listen, with the
// entry that it follows.
type published struct {
	entry
	before entry // without commands
}

const publishedWord = "entry "

// parsePublished returns the entry that a notification brings.
func parsePublished(payload string) (p published, err error) {
	words := strings.SplitN(payload, " ", 9)
	if len(words) != 9 {
		return p, fmt.Errorf("a notification of %d words", len(words))
	}
	for i, n := range []*int64{&p.Seq, &p.At, &p.Replica, &p.Op, &p.before.At, &p.before.Replica, &p.before.Op} {
		if *n, err = strconv.ParseInt(words[i+1], 10, 64); err != nil {
			return p, err
		}
	}
	p.before.Seq = p.Seq - 1
	p.Commands, err = base64.StdEncoding.DecodeString(words[8])
	return p, err
}

const (
	// maxAhead is how far entries may be ahead of what was read.
	maxAhead = 64
	// missFor is how long what they follow may take to come. It comes with the
	// next step in any case, and is hardly ever lost.
	missFor = 20 * time.Millisecond
)

// hearEntry applies an entry that another replica has published, once those before
// it are applied. A step reads it, too, whatever becomes of it here.
func (s *Store) hearEntry(p published) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil || p.Replica == s.id || p.Seq <= s.machine.seq || p.Seq > s.machine.seq+maxAhead {
		return
	}
	if s.ahead == nil {
		s.ahead = make(map[int64]published)
	}
	s.ahead[p.Seq] = p
	s.catchUp()
}

// catchUp applies those of the published entries that follow what was read. A
// process that was frozen may hear them long after they were made, so it has to
// believe in its lease.
func (s *Store) catchUp() {
	var some bool
	for p, ok := s.ahead[s.machine.seq+1]; ok && s.believes(); p, ok = s.ahead[s.machine.seq+1] {
		delete(s.ahead, p.Seq)
		if s.machine.last == nil || !s.machine.last.is(p.before) {
			break // of another log, or the first: a step tells
		}
		if _, err := s.apply(p.entry, &batch{}, nil); err != nil {
			break // a step finds the same
		}
		some = true
	}
	if some {
		s.settle()
	}
	for seq := range s.ahead {
		if seq <= s.machine.seq {
			delete(s.ahead, seq)
		}
	}
	if len(s.ahead) > 0 && s.missing == 0 {
		s.missing = s.machine.seq + 1
		time.AfterFunc(missFor, s.miss)
	}
}

// miss reads what has not come, if that is still so, and all that has come.
func (s *Store) miss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := s.machine != nil && s.machine.seq < s.missing
	s.missing = 0
	switch {
	case len(s.ahead) == 0:
	case stuck:
		clear(s.ahead)
		s.pressLocked()
		s.kick()
	default: // something else is missed by now
		s.catchUp()
	}
}
