package postgres_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/postgres"
	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
	"github.com/usherproxy/usher/policy"
)

// rules are the numbers of the rules and what they make of one history, in the form
// in which it is stored.
var rules = map[int]string{
	3: "f1aca7017589546f",
}

// Replicas of two releases may share a log while one replaces the other. So what
// entries lead to changes with the number of the rules only.
func TestRulesKeepTheirNumber_B126(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	var commands []postgres.Command
	for i := range 400 {
		commands = append(commands, randomCommand(dice, i))
	}
	data := postgres.Encode(commands)
	state, err := postgres.Apply(data)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(data, state...))
	if got := hex.EncodeToString(sum[:8]); got != rules[postgres.RulesVersion] {
		t.Errorf("by rules %d the history leads to %s, want %s: raise rulesVersion, and add it here",
			postgres.RulesVersion, got, rules[postgres.RulesVersion])
	}
}

func randomCommand(dice *rand.Rand, i int) (c postgres.Command) {
	some := func() postgres.Name { return postgres.Name{ID: fmt.Sprint("r", dice.IntN(i+1)), Attempt: 1} }
	switch dice.IntN(11) {
	case 0, 1:
		c.Forget = new(some())
	case 2, 3:
		c.Release = new(postgres.Named(some(), dice.IntN(2) == 0))
		if dice.IntN(2) == 0 {
			c.Release.Tokens = new(dice.Int64N(9))
		}
	case 4:
		c.Hand = postgres.HandOver(some(), some())
	case 5:
		c.Resume = new(randomRecord(dice, i))
		c.Resume.Candidates = c.Resume.Candidates[:1]
	case 6:
		c.Give = []queue.Loan{{Scope: "fleet", N: dice.Int64N(2)}, {Scope: "key:1", N: 1}}
	default:
		c.Admit = new(randomRecord(dice, i))
	}
	return c
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
