package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

// An Order is how candidates of equal priority are ranked: by the first of its
// words, where that says nothing by the second, and so on. What all of them
// leave equal is drawn by weight.
type Order []Word

// A Word is one thing to rank candidates by.
type Word string

// The words.
const (
	// Priority keeps the order of the configuration.
	Priority Word = "priority"
	// Affinity prefers the key that served the session last, and draws the
	// same order for all requests of a session.
	Affinity Word = "affinity"
	// HealthOrder prefers keys that fail seldom and answer fast.
	HealthOrder Word = "health"
	// LeastLoaded prefers the key that uses the smallest part of its limits.
	LeastLoaded Word = "least_loaded"
	// Weighted draws candidates by their weights.
	Weighted Word = "weighted"
	// LeastRecentlyUsed prefers the key that was not used for the longest.
	LeastRecentlyUsed Word = "least_recently_used"
	// Plan prefers keys by their label "plan", in the order of the option.
	Plan Word = "plan"
	// QuotaBalanced prefers the key of whose quotas most is left.
	QuotaBalanced Word = "quota_balanced"
	// SoonestReset prefers the key whose quota begins anew first.
	SoonestReset Word = "soonest_reset"
	// Latency prefers the candidate that answers first.
	Latency Word = "latency"
	// Cost prefers the candidate that serves the request for the least.
	Cost Word = "cost"
)

var words = []Word{
	Priority, Affinity, HealthOrder, LeastLoaded, Weighted, LeastRecentlyUsed,
	Plan, QuotaBalanced, SoonestReset, Latency, Cost,
}

// total reports whether no two candidates are equal in w.
func (w Word) total() bool { return w == Priority || w == Weighted }

// UnmarshalJSON accepts one word, or a list of them.
func (o *Order) UnmarshalJSON(raw []byte) error {
	names, err := decodeNames(raw)
	*o = nil
	for _, name := range names {
		*o = append(*o, Word(name))
	}
	return err
}

// Names are one or more words of the operator's choice.
type Names []string

// UnmarshalJSON accepts one name, or a list of them.
func (n *Names) UnmarshalJSON(raw []byte) (err error) {
	*n, err = decodeNames(raw)
	return err
}

// decodeNames decodes a list, or a string with words.
func decodeNames(raw []byte) (names []string, err error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return strings.Fields(one), nil
	}
	if json.Unmarshal(raw, &names) != nil {
		return nil, errors.New("wants one or more words")
	}
	return names, nil
}

// choices lists the words, for people.
func choices() string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	return strings.Join(names, ", ")
}

// validate reports what is wrong with the order.
func (o Order) validate() error {
	if len(o) == 0 {
		return sdk.OptionError("order", "is empty; use some of %s", choices())
	}
	for i, w := range o {
		switch {
		case !slices.Contains(words, w):
			return sdk.OptionError("order", "no such word %q; use one of %s", w, choices())
		case slices.Contains(o[:i], w):
			return sdk.OptionError("order", "has %q twice", w)
		case w.total() && i < len(o)-1:
			return sdk.OptionError("order", "%q leaves nothing equal, so %q behind it could never count", w, o[i+1])
		}
	}
	return nil
}

// has reports whether the order asks for w.
func (o Order) has(w Word) bool { return slices.Contains(o, w) }

// last returns what the order draws by in the end.
func (o Order) last() Word {
	if last := o[len(o)-1]; last.total() || last == LeastRecentlyUsed {
		return last
	}
	return Weighted
}

// String returns the words of the order.
func (o Order) String() string { return strings.Trim(fmt.Sprint([]Word(o)), "[]") }

// A Seed is where the order of one selection comes from. It is no time and no
// verdict depends on it.
type Seed uint64

// explores reports whether a request of this seed ignores how candidates fared:
// who is never asked could not show that it fares better.
func (s Seed) explores() bool { return mix(uint64(s)^0x9e3779b97f4a7c15)%16 == 0 }

// A scale says how much of the rank of a candidate a word takes.
type scale struct {
	word Word
	bits int
}

// scales returns the scales of an order. All words together fit into 64 bits.
func (o Order) scales() []scale {
	bits := map[Word]int{
		Affinity: 1, HealthOrder: 2, Plan: 4, QuotaBalanced: 4, SoonestReset: 6, Latency: 6,
		Cost: 11, LeastRecentlyUsed: 6, LeastLoaded: 16,
	}
	var scales []scale
	for _, w := range o {
		if !w.total() {
			scales = append(scales, scale{w, bits[w]})
		}
	}
	return scales
}

// A view is what words look at.
type view struct {
	now     time.Time
	request *policy.Request
	plans   []string
	bound   uint64 // the hash of the candidate that the session is bound to, or 0
	explore bool
}

// rank returns where the word puts a candidate; less is better.
func (s scale) rank(v *view, f *Facts, sl *slot) uint64 {
	c := f.Candidate
	switch s.word {
	case Affinity:
		return bit(v.bound != sl.hash)
	case HealthOrder:
		if v.explore {
			return 0
		}
		return max(failureRank(c.Load.Failures), slowness(c.Load.Latency), illness(f))
	case LeastLoaded:
		return uint64(load(c)*math.MaxUint16 + 0.5)
	case LeastRecentlyUsed:
		return s.most() - steps(v.now.Sub(time.Unix(0, sl.key.usedAt.Load())).Seconds(), 0.001, 1, s.most())
	case Plan:
		return planRank(v.plans, c.Labels["plan"], s.most())
	case QuotaBalanced:
		return uint64(quotaUsed(v.now, f) * float64(s.most()))
	case SoonestReset:
		return soonestReset(v.now, f, s.most())
	case Latency:
		if v.explore {
			return 0
		}
		return steps(c.Load.Latency.Seconds(), 0.02, 2, s.most())
	case Cost:
		return cost(v.request, c.Price, s.most())
	}
	return 0
}

// most returns the highest rank of the scale.
func (s scale) most() uint64 { return 1<<s.bits - 1 }

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// steps returns how far x is above unit: 1<<fine steps for each doubling, but no
// more than most.
func steps(x, unit float64, fine int, most uint64) uint64 {
	if !(x > unit) {
		return 0
	}
	const mantissa, bias = 52, 1023
	n := math.Float64bits(x/unit)>>(mantissa-fine) - bias<<fine
	return min(n, most)
}

// failureRank returns how often a candidate fails, from 0 to 3.
func failureRank(failures float64) uint64 {
	switch {
	case failures < 0.2:
		return 0
	case failures < 0.5:
		return 1
	case failures < 0.8:
		return 2
	}
	return 3
}

// slowness returns how slowly a candidate answers, from 0 to 3.
func slowness(latency time.Duration) uint64 {
	switch {
	case latency < 5*time.Second:
		return 0
	case latency < 20*time.Second:
		return 1
	case latency < time.Minute:
		return 2
	}
	return 3
}

// illness returns what an operator thinks of the key, from 0 to 3.
func illness(f *Facts) uint64 {
	if f.Key == nil || len(f.Key.Health) == 0 {
		return 0
	}
	return failureRank(1 - f.Key.health(f.Request.Format))
}

// load returns the part of the key's limits that is used, from 0 to 1. A key
// without a limit of what runs is compared by what runs there per weight.
func load(c *policy.Candidate) float64 {
	var most float64
	limited := false
	for i := range c.Scopes {
		s := &c.Scopes[i]
		if s.Limit > 0 && strings.HasPrefix(s.ID, "key:") {
			most = max(most, float64(s.Used)/float64(s.Limit))
			limited = limited || s.Kind == policy.ScopeConcurrency
		}
	}
	if !limited {
		running := float64(max(c.Load.InFlight, 0)) / float64(max(c.Weight, 1))
		most = max(most, running/(running+16))
	}
	return min(most, 1)
}

func planRank(plans []string, plan string, most uint64) uint64 {
	if i := slices.Index(plans, plan); i >= 0 {
		return min(uint64(i), most)
	}
	return most
}

// quotaUsed returns the largest part of a quota that is used, from 0 to 1.
func quotaUsed(now time.Time, f *Facts) float64 {
	var most float64
	for _, k := range [...]*Known{f.Account, f.Key, f.Model} {
		if k == nil {
			continue
		}
		for _, w := range k.Windows {
			if w.Kind == "" && ahead(now, resets(w)) {
				most = max(most, w.Used)
			}
		}
	}
	return most
}

// soonestReset ranks by when the first quota begins anew.
func soonestReset(now time.Time, f *Facts, most uint64) uint64 {
	rank := most
	for _, k := range [...]*Known{f.Account, f.Key, f.Model} {
		if k == nil {
			continue
		}
		for _, w := range k.Windows {
			if left := resets(w).Sub(now); w.Kind == "" && left > 0 {
				rank = min(rank, steps(left.Minutes(), 1, 2, most-1))
			}
		}
	}
	return rank
}

// usualOutput is how many tokens of output are reckoned with if the request does
// not limit them.
const usualOutput = 1000

// cost ranks by the price of the request. A price that is not told comes last.
func cost(req *policy.Request, price policy.Price, most uint64) uint64 {
	if price == (policy.Price{}) {
		return most
	}
	usage := policy.Usage{InputTokens: req.InputTokens, OutputTokens: req.MaxOutputTokens}
	if usage.OutputTokens == 0 {
		usage.OutputTokens = usualOutput
	}
	return steps(price.Of(usage), 1e-9, 5, most-1)
}
