package postgres_test

import (
	"fmt"
	"strings"
	"testing"
)

// A written is a log that a test writes by hand.
type written []row

// add appends an entry of a replica.
func (w *written) add(replica int64, command string, args ...any) {
	n := int64(len(*w) + 1)
	*w = append(*w, row{Seq: n, At: n, Replica: replica, Commands: fmt.Appendf(nil, "["+command+"]", args...)})
}

// wants returns the command of a request that holds scopes of the IDs, of each of
// which there are so many as its last letter says.
func wants(id string, priority int, scopes ...string) string {
	var list []string
	for _, s := range scopes {
		list = append(list, fmt.Sprintf(`{"id": %q, "kind": "concurrency", "limit": %c}`, s, s[len(s)-1]))
	}
	return fmt.Sprintf(`{"admit": {"id": %q, "attempt": 1, "priority": %d, "rules": {"max_passes": 1}, "scopes": [%s], "candidates": [{"id": "any"}]}}`,
		id, priority, strings.Join(list, ", "))
}

// inherit returns a log in which one starts on what another held, as its replica
// let it when it had read the entries up to after. Room is kept for "passed", and
// entry 7 takes that room, for one who comes before both.
func inherit(after int) (log written) {
	log.add(1, wants("key", 0, "key1"))
	log.add(1, wants("ends", 0, "fleet2"))
	log.add(1, wants("ends too", 0, "fleet2"))
	log.add(2, wants("passed", 0, "fleet2", "key1"))
	log.add(1, `{"release": {"id": "ends too", "attempt": 1}}`) // a turn in vain: there is no key
	log.add(1, wants("heir", 0, "fleet2"))
	log.add(2, wants("urgent", 1, "fleet2"))
	log.add(1, `{"hand": {"id": "ends", "attempt": 1, "to": {"id": "heir", "attempt": 1}, "after": %d}}`, after)
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
