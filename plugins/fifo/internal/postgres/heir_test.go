package postgres_test

import (
	"fmt"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// A written is a log that a test writes by hand.
type written []row

// add appends an entry of a replica.
func (w *written) add(replica int64, c postgres.Command) {
	n := int64(len(*w) + 1)
	*w = append(*w, row{Seq: n, At: n, Replica: replica, Commands: postgres.Encode([]postgres.Command{c})})
}

// wants returns the command of a request that holds scopes of the IDs, of each of
// which there are so many as its last letter says.
func wants(id string, priority int, scopes ...string) postgres.Command {
	r := queue.Record{
		ID: id, Attempt: 1, Priority: priority, Rules: queue.RulesRecord{MaxPasses: 1},
		Candidates: []queue.CandidateRecord{{ID: "any"}},
	}
	for _, s := range scopes {
		r.Scopes = append(r.Scopes, queue.ScopeRecord{ID: s, Kind: policy.ScopeConcurrency, Limit: int64(s[len(s)-1] - '0')})
	}
	return postgres.Command{Admit: &r}
}

// inherit returns a log in which one starts on what another held, as its replica
// let it when it had read the entries up to after. Room is kept for "passed", and
// entry 7 takes that room, for one who comes before both.
func inherit(after int64) (log written) {
	log.add(1, wants("key", 0, "key1"))
	log.add(1, wants("ends", 0, "fleet2"))
	log.add(1, wants("ends too", 0, "fleet2"))
	log.add(2, wants("passed", 0, "fleet2", "key1"))
	log.add(1, postgres.Command{Release: new(postgres.Named(postgres.Name{ID: "ends too", Attempt: 1}, false))}) // a turn in vain: there is no key
	log.add(1, wants("heir", 0, "fleet2"))
	log.add(2, wants("urgent", 1, "fleet2"))
	hand := postgres.HandOver(postgres.Name{ID: "ends", Attempt: 1}, postgres.Name{ID: "heir", Attempt: 1})
	hand.After = after
	log.add(1, postgres.Command{Hand: hand})
	return log
}

// An heir starts when his replica knows that there is room for him and for what is
// kept. He has passed nobody if others take that room before the log hears of him.
func TestHeirsStartBeforeTheLogHearsOfIt(t *testing.T) {
	t.Parallel()
	c := goThrough(t, inherit(6))
	for id, runs := range map[string]bool{"key": true, "passed": false, "heir": true, "urgent": true} {
		if got := c.runs(c.live[ticketName{id, 1}]); got != runs {
			t.Errorf("%s runs: %t, want %t", id, got, runs)
		}
	}
}

// An heir who starts although his replica knows that others need the room is found.
func TestHeirsOfWhatIsKeptAreFound(t *testing.T) {
	t.Parallel()
	found := &finder{TB: t}
	func() {
		defer func() { _ = recover() }()
		goThrough(found, inherit(7))
	}()
	if want := "entry 8: heir took what was kept for passed of {fleet2 concurrency 0}"; found.text != want {
		t.Errorf("found %q, want %q", found.text, want)
	}
}

// A finder keeps what is found instead of failing.
type finder struct {
	testing.TB
	text string
}

func (f *finder) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}
