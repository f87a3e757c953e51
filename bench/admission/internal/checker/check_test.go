package checker_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/bench/admission/internal/checker"
	"github.com/usherproxy/usher/bench/admission/internal/events"
)

// tell returns the events of a story, a second apart. Each word is what happened to
// which request, such as "ask:a"; a request wants "one", of limit 1, unless its name
// begins with another scope and its limit, as in "ask:key4.a". One with a capital
// letter is urgent. Replica 1 has the requests that end in a "1".
func tell(t *testing.T, story string) (all []events.Event) {
	t.Helper()
	for i, word := range strings.Fields(story) {
		kind, name, _ := strings.Cut(word, ":")
		e := events.Event{At: int64(i+1) * int64(time.Second), Kind: events.Kind(kind), Attempt: 1}
		scope := events.Scope{ID: "one", Limit: 1}
		if strings.HasSuffix(name, "1") {
			e.Replica = 1
		}
		id := name
		if of, rest, ok := strings.Cut(name, "."); ok {
			scope.ID = strings.TrimRight(of, "0123456789")
			if limit, err := strconv.Atoi(strings.TrimPrefix(of, scope.ID)); err == nil {
				scope.Limit = int64(limit)
			}
			id = scope.ID + "." + rest
		}
		if short, ok := strings.CutSuffix(id, "'"); ok { // the second attempt
			id, e.Attempt = short, 2
		}
		switch e.Kind {
		case events.Killed, events.Frozen, events.Thawed, events.Trouble, events.Recovered:
		case events.Audit:
			e.Scope = &scope
			e.Got = int64(strings.Count(id, "+"))
		default:
			e.ID = id
			if e.Kind == events.Ask {
				e.Own, e.Candidates = []events.Scope{scope}, [][]events.Scope{{}}
				if id != strings.ToLower(id) {
					e.Priority = 1
				}
			}
		}
		all = append(all, e)
	}
	return all
}

func TestCheck(t *testing.T) {
	t.Parallel()
	patience := checker.Patience{Notice: 3500 * time.Millisecond, Dead: 2 * time.Second, Fence: 1500 * time.Millisecond}
	for name, c := range map[string]struct {
		story  string
		strict bool
		want   string // the kinds that are found
	}{
		"one after the other":                    {"ask:a run:a end:a ask:b run:b end:b", false, ""},
		"two at once":                            {"ask:a run:a ask:b run:b end:a end:b", false, "over"},
		"two at once where two may":              {"ask:k2.a run:k.a ask:k2.b run:k.b end:k.a end:k.b", false, ""},
		"in order":                               {"ask:h run:h ask:a wait:a ask:b wait:b end:h run:a end:a run:b end:b", false, ""},
		"out of order":                           {"ask:h run:h ask:a wait:a ask:b wait:b end:h run:b end:b run:a end:a", false, "order"},
		"asked before the other waits":           {"ask:h run:h ask:a ask:b wait:a wait:b end:h run:b end:b run:a end:a", false, ""},
		"a newcomer passes":                      {"ask:h run:h ask:a wait:a end:h ask:b run:b end:b run:a end:a", false, "order"},
		"another scope":                          {"ask:h run:h ask:a wait:a ask:k1.b run:k.b end:k.b end:h run:a end:a", false, ""},
		"an urgent one passes":                   {"ask:h run:h ask:a wait:a ask:B wait:B end:h run:B end:B run:a end:a", false, ""},
		"an urgent one is passed":                {"ask:h run:h ask:a wait:a ask:B wait:B end:h run:a end:a run:B end:B", false, "order"},
		"the passed one leaves":                  {"ask:h run:h ask:a wait:a ask:b wait:b end:h run:b cancel:a left:a end:b", false, "order"},
		"a failover keeps its place":             {"ask:a run:a end:a ask:h run:h ask:b wait:b ask:a' wait:a' end:h run:a' end:a' run:b end:b", false, ""},
		"a failover loses its place":             {"ask:a run:a end:a ask:h run:h ask:b wait:b ask:a' wait:a' end:h run:b end:b run:a' end:a'", false, "order"},
		"forgotten though there is room":         {"ask:h run:h ask:a wait:a end:h ask:k9.x run:k.x end:k.x ask:k9.y run:a end:a", false, "lost"},
		"nothing is known of room after trouble": {"ask:h run:h ask:a wait:a end:h trouble: recovered: ask:k9.y run:a end:a", false, ""},
		"all is back":                            {"ask:a run:a end:a audit:one1.+", false, ""},
		"something is not":                       {"ask:k2.a run:k.a end:k.a audit:k2.+", false, "leaks"},
		"a killed replica uses nothing":          {"ask:a1 run:a1 killed:1 ask:b run:b end:b", false, ""},
		"a stopped replica uses nothing":         {"ask:a1 run:a1 frozen:1 ask:b run:b end:b thawed:1 end:a1", false, ""},
		"one that goes on has a moment":          {"ask:a1 run:a1 frozen:1 ask:b run:b thawed:1 end:a1 end:b", false, ""},
		"one that goes on for longer":            {"ask:a1 run:a1 frozen:1 ask:b run:b thawed:1 ask:x wait:x end:a1 end:b run:x end:x", false, "over"},
		"a higher limit holds at once":           {"ask:k1.a run:k.a ask:k2.b run:k.b end:k.a end:k.b", false, ""},
		"a lower limit ends nothing":             {"ask:k2.a run:k.a ask:k2.b run:k.b ask:k1.c wait:k.c end:k.a end:k.b run:k.c end:k.c", false, ""},
		"a lower limit is passed":                {"ask:k2.a run:k.a ask:k1.b wait:k.b ask:k1.c run:k.c end:k.c end:k.a run:k.b end:k.b", false, "order over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := checker.Check(tell(t, c.story), c.strict, patience)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for kind, list := range map[string][]string{"over": r.Over, "order": r.Order, "leaks": r.Leaks, "lost": r.Lost} {
				if len(list) > 0 {
					found = append(found, kind)
				}
			}
			slices.Sort(found)
			if got := strings.Join(found, " "); got != c.want {
				t.Errorf("found %q, want %q: %v", got, c.want, r)
			}
		})
	}
}
