package keys_test

import (
	"math"
	rand1 "math/rand"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/usherproxy/usher/plugins/keys"
	"github.com/usherproxy/usher/policy"
)

// randomFacts are facts of any kind, however absurd.
type randomFacts struct {
	now   time.Time
	facts keys.Facts
}

func (randomFacts) Generate(r *rand1.Rand, _ int) reflect.Value {
	d := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	f := keys.Facts{
		Request: &policy.Request{ID: pick(d, "this", "other", ""), Format: pick(d, "openai", ""), InputTokens: d.Int64(), MinInputTokens: d.Int64N(100) - 50},
		Candidate: &policy.Candidate{
			ContextTokens: pick(d, 0, d.Int64(), -1), Disabled: d.IntN(5) == 0, Scopes: randomScopes(d, "provider:p", "key:p/k", "model:m", ""),
		},
		Provider: randomKnown(d), Account: randomKnown(d), Key: randomKnown(d), Model: randomKnown(d),
		KeyRequests: d.IntN(100), ModelRequests: d.IntN(100), QuotaReserve: pick(d, 0, 0.1, 1, -1, math.NaN()),
		NoCircuits: d.IntN(4) == 0, DoubtEstimate: d.IntN(2) == 0,
	}
	f.Request.Scopes = randomScopes(d, "caller:c", "group:g", "fleet", "")
	return reflect.ValueOf(randomFacts{randomInstant(d), f})
}

func pick[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

func randomInstant(d *rand.Rand) time.Time {
	switch d.IntN(4) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(d.Int64()>>uint(d.IntN(40)), 0)
	}
	return time.Unix(1_000_000+d.Int64N(100), 0)
}

func randomScopes(d *rand.Rand, ids ...string) []policy.Scope {
	var scopes []policy.Scope
	for range d.IntN(4) {
		scopes = append(scopes, policy.Scope{
			ID: pick(d, ids...), Kind: pick(d, policy.ScopeKinds()...),
			Limit: d.Int64N(5) - 1, Used: d.Int64N(5) - 1, Resets: randomInstant(d),
		})
	}
	return scopes
}

func randomKnown(d *rand.Rand) *keys.Known {
	if d.IntN(3) == 0 {
		return nil
	}
	breaker := func() keys.Breaker {
		return keys.Breaker{
			Open: d.IntN(3) == 0, Until: randomInstant(d), Probing: d.IntN(2) == 0, Probe: pick(d, "this", "other", ""),
			ProbeUntil: randomInstant(d), Failures: d.IntN(9), Limit: d.IntN(9),
		}
	}
	hold := func() keys.Hold {
		return keys.Hold{Until: randomInstant(d), At: randomInstant(d), Cleared: randomInstant(d)}
	}
	k := &keys.Known{
		Quota: hold(), Cooldown: hold(), Refused: breaker(),
		Account: keys.AccountState{Standing: pick(d, append(keys.Standings(), "", "odd")...), Expires: randomInstant(d), Until: randomInstant(d)},
		Learned: keys.Learned{Limit: d.IntN(50) - 5, Told: d.IntN(2) == 0, Since: randomInstant(d)},
	}
	for range d.IntN(3) {
		k.Windows = append(k.Windows, randomWindow(d))
	}
	for range d.IntN(3) {
		k.Circuits = append(k.Circuits, keys.Circuit{Format: pick(d, "openai", ""), Breaker: breaker()})
		k.Health = append(k.Health, keys.Health{Format: pick(d, "openai", ""), Score: pick(d, 0, 0.5, 1, math.NaN())})
	}
	return k
}

func randomWindow(d *rand.Rand) policy.Window {
	return policy.Window{
		Name: pick(d, "5h", "weekly", ""), Kind: pick(d, "", policy.ScopeRequests, policy.ScopeTokens),
		Length: pick(d, 0, time.Minute, -1, math.MaxInt64), Used: pick(d, 0, 0.5, 0.99, 1, 7, -1, math.NaN()),
		Limit: pick(d, 0, 100, math.Inf(1)), Resets: randomInstant(d), ObservedAt: randomInstant(d),
	}
}

// Whatever the facts, there is a verdict, it agrees with itself, and it is the
// same once the facts are summarized.
func TestAnyFactsHaveAVerdict(t *testing.T) {
	t.Parallel()
	check := func(r randomFacts) bool {
		status, why := keys.Evaluate(r.now, &r.facts)
		summarized := r.facts.Summarized()
		again, whyAgain := keys.Evaluate(r.now, &summarized)
		same := why == whyAgain || why.Observed != why.Observed || why.Limit != why.Limit // NaN
		return again == status && same &&
			(status == policy.Eligible) == (why.Reason == "") &&
			(status == policy.Busy) == why.Reason.Capacity() &&
			(why.Reason == "" || why.Reason.Valid())
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 10_000}); err != nil {
		t.Error(err)
	}
}

// Invariant 4: what is over when it is judged keeps nobody away. A standing
// that somebody has to change, and a window that resets nobody knows when, are
// not over.
func TestWhatIsOverNeverBlocks(t *testing.T) {
	t.Parallel()
	check := func(r randomFacts) bool {
		for _, k := range []*keys.Known{r.facts.Provider, r.facts.Account, r.facts.Key, r.facts.Model} {
			if k == nil {
				continue
			}
			k.Account, k.Learned, k.Health = keys.AccountState{}, keys.Learned{}, nil
			k.Windows = slices.DeleteFunc(k.Windows, func(w policy.Window) bool { return w.Resets.IsZero() })
		}
		r.facts.Request.Scopes, r.facts.Candidate.Scopes, r.facts.Candidate.Disabled = nil, nil, false
		r.facts.Candidate.ContextTokens = 0
		_, why := keys.Evaluate(r.now, &r.facts)
		return why.Reason == "" || r.now.Before(why.Until)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 10_000}); err != nil {
		t.Error(err)
	}
}

// Invariant 5: what is known after several observations of windows does not
// depend on their order.
func TestObservationsCommute(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		observations := make([]policy.Window, 2+dice.IntN(4))
		for i := range observations {
			observations[i] = policy.Window{
				Name: pick(dice, "5h", "weekly"), Used: float64(dice.IntN(4)) / 3, Limit: float64(dice.IntN(2)),
				Resets: time.Unix(dice.Int64N(3), 0), ObservedAt: time.Unix(dice.Int64N(3), 0),
			}
		}
		var first []policy.Window
		for round := range 4 {
			var k keys.Known
			for _, w := range observations {
				k.Observe(w)
			}
			slices.SortFunc(k.Windows, func(a, b policy.Window) int { return len(a.Name) - len(b.Name) })
			if round == 0 {
				first = k.Windows
			} else if !reflect.DeepEqual(k.Windows, first) {
				t.Fatalf("two orders of %v:\n%v\n%v", observations, first, k.Windows)
			}
			dice.Shuffle(len(observations), func(i, j int) { observations[i], observations[j] = observations[j], observations[i] })
		}
	}
}
