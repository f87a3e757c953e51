package postgres_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// rules are the numbers of the rules and what they make of one history.
var rules = map[int]string{
	2: "201f9253ddca561e",
}

// Replicas of two releases may share a log while one replaces the other. So what
// entries lead to changes with the number of the rules only.
func TestRulesKeepTheirNumber(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	var commands []any
	for i := range 400 {
		n := map[string]any{"id": fmt.Sprint("r", dice.IntN(i+1)), "attempt": 1}
		switch dice.IntN(11) {
		case 0, 1:
			commands = append(commands, map[string]any{"forget": n})
		case 2:
			commands = append(commands, map[string]any{"release": n})
		case 3:
			n["keep"] = true
			commands = append(commands, map[string]any{"release": n})
		case 4:
			n["to"] = map[string]any{"id": fmt.Sprint("r", dice.IntN(i+1)), "attempt": 1}
			commands = append(commands, map[string]any{"hand": n})
		case 5:
			r := randomRecord(dice, i)
			r.Candidates = r.Candidates[:1]
			commands = append(commands, map[string]any{"resume": r})
		case 6:
			commands = append(commands, map[string]any{"give": []queue.Loan{{Scope: "fleet", N: dice.Int64N(2)}, {Scope: "key:1", N: 1}}})
		default:
			commands = append(commands, map[string]any{"admit": randomRecord(dice, i)})
		}
	}
	data, err := json.Marshal(commands)
	if err != nil {
		t.Fatal(err)
	}
	state, err := postgres.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(state))
	if got := hex.EncodeToString(sum[:8]); got != rules[postgres.RulesVersion] {
		t.Errorf("by rules %d the history leads to %s, want %s: raise rulesVersion, and add it here",
			postgres.RulesVersion, got, rules[postgres.RulesVersion])
	}
}

func randomRecord(dice *rand.Rand, i int) queue.Record {
	some := func(names ...string) (scopes []queue.ScopeRecord) {
		for range dice.IntN(3) {
			s := queue.ScopeRecord{ID: names[dice.IntN(len(names))], Kind: policy.ScopeConcurrency, Limit: 2}
			if dice.IntN(3) == 0 {
				s.Kind, s.Limit, s.Window = policy.ScopeTokens, 40, 1e9
			}
			scopes = append(scopes, s)
		}
		return scopes
	}
	r := queue.Record{
		ID: fmt.Sprint("r", i), Attempt: 1, Priority: dice.IntN(2), Arrival: int64(i + 1), Tokens: dice.Int64N(6),
		Scopes: some("fleet", "caller:a", "caller:b"), Rules: queue.RulesRecord{MaxPasses: dice.IntN(3)},
	}
	for c := range 1 + dice.IntN(3) {
		r.Candidates = append(r.Candidates, queue.CandidateRecord{ID: fmt.Sprint("c", c), Scopes: some("key:1", "key:2")})
	}
	return r
}
