package keys_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// Whatever replicas tell, in whatever order and however often it is heard, they
// come to know the same.
func TestToldFactsCommute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		dice := rand.New(rand.NewPCG(seed, 11))
		teller := newSite(t, `{"breaker": {"failures": 2}}`, "p/k1/m1", "p/k1/m2", "p/k2/m1")
		told := keys.Tell(teller.plugin)
		for i := range 60 {
			tellSomething(teller, dice, i)
			teller.wait(time.Duration(1+dice.IntN(20_000)) * time.Millisecond)
		}
		rows := told()
		var want string
		for range 4 {
			hearer := newSite(t, `{"breaker": {"failures": 2}}`)
			hearer.now = teller.now
			dice.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			for part := range slices.Chunk(rows, 1+dice.IntN(len(rows))) {
				keys.Hear(hearer.plugin, part)
			}
			keys.Hear(hearer.plugin, rows[:dice.IntN(len(rows))])
			got := hearer.known()
			if want == "" {
				want = got
			} else if got != want {
				t.Fatalf("seed %d: two orders differ:\n%s", seed, cmp.Diff(want, got))
			}
		}
	}
}

// tellSomething lets one thing become known.
func tellSomething(s *site, dice *rand.Rand, i int) {
	c := s.candidates[dice.IntN(len(s.candidates))]
	about := policy.Subject(pick(dice, "", policy.SubjectKey, policy.SubjectModel, policy.SubjectAccount))
	switch dice.IntN(6) {
	case 0:
		s.operate("set-account", fmt.Sprintf(`{"provider": "p", "key": %q, "standing": %q}`, c.Key, pick(dice, keys.Standings()...)))
	case 1:
		s.operate("set-health", fmt.Sprintf(`{"provider": "p", "key": %q, "health": %v}`, c.Key, dice.Float64()))
	case 2:
		s.ask(policy.Request{ID: fmt.Sprint("probe ", i)})
	case 3:
		w := policy.Window{
			Name: pick(dice, "5h", "weekly", "requests"), Used: float64(dice.IntN(3)) / 2, Limit: 10, Length: time.Minute,
			Kind: pick(dice, "", policy.ScopeRequests), About: about, ObservedAt: s.now.Add(-time.Duration(dice.IntN(30)) * time.Second),
		}
		s.end(c.ID, policy.OK, window(w))
	default:
		d := pick(dice, policy.RateLimited, policy.QuotaExhausted, policy.AuthFailed, policy.Overloaded, policy.OK)
		res := policy.AttemptResult{
			RequestID: fmt.Sprint("probe ", dice.IntN(i+1)), Candidate: c, Format: "openai", Disposition: d, EndedAt: s.now, About: about,
		}
		if dice.IntN(2) == 0 {
			res.Until = s.now.Add(time.Duration(dice.IntN(100)) * time.Second)
		}
		s.Observe(s.t.Context(), res)
	}
}

// known returns what the site knows, but for what it counts.
func (s *site) known() string {
	s.t.Helper()
	var answer map[string]any
	if err := json.Unmarshal([]byte(s.operate("status", "")), &answer); err != nil {
		s.t.Fatal(err)
	}
	order(answer)
	text, err := json.MarshalIndent(answer, "", " ")
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// order sorts the lists in v whose order means nothing.
func order(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			order(inner)
		}
	case []any:
		for _, inner := range v {
			order(inner)
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// Whatever an operator sends, the answer is JSON or an error, and what follows
// still works.
func FuzzOperate(f *testing.F) {
	for _, seed := range []struct{ name, input string }{
		{"status", `{"provider": "p"}`},
		{"set-windows", `{"provider": "p", "key": "k1", "windows": [{"name": "weekly", "used": 1, "length": "5h"}]}`},
		{"set-account", `{"provider": "p", "key": "k1", "standing": "revoked", "until": "2026-01-01T00:00:00Z"}`},
		{"set-health", `{"provider": "p", "key": "k1", "health": 0, "format": "openai"}`},
		{"clear", `{"provider": "p", "key": "k1", "facts": ["windows"]}`},
		{"clear", `{"provider": "p"}`},
		{"", `[`},
	} {
		f.Add(seed.name, seed.input)
	}
	f.Fuzz(func(t *testing.T, name, input string) {
		s := newSite(t, fixed, "k1")
		out, err := s.Operate(t.Context(), policy.Command{Name: name, Input: json.RawMessage(input)})
		if (err == nil) != json.Valid(out) {
			t.Errorf("%s %s: answer %q, error %v", name, input, out, err)
		}
		s.ask(policy.Request{ID: "x"})
		if out := s.operate("status", ""); !json.Valid([]byte(out)) {
			t.Errorf("status %q", out)
		}
		s.operate("clear", `{"provider": "p", "key": "k1"}`)
		s.operate("clear", `{"provider": "p"}`)
		s.expect("k1 eligible")
	})
}
