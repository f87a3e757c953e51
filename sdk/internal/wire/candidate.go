package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
)

// CandidateToProto translates c without what changes about it.
func CandidateToProto(c policy.Candidate) *policypb.Candidate {
	scopes := scopesToProto(c.Scopes)
	for _, s := range scopes {
		s.Used, s.Resets = 0, nil // a reference leaves out what is 0
	}
	out := &policypb.Candidate{
		Id:            c.ID,
		Provider:      c.Provider,
		Key:           c.Key,
		KeyVersion:    c.KeyVersion,
		Account:       c.Account,
		Model:         c.Model,
		Priority:      int64(c.Priority),
		Weight:        int64(c.Weight),
		Disabled:      c.Disabled,
		ContextTokens: c.ContextTokens,
		Labels:        c.Labels,
		Scopes:        scopes,
	}
	if c.Price != (policy.Price{}) {
		out.Price = &policypb.Price{Input: c.Price.Input, Output: c.Price.Output}
	}
	return out
}

// CandidateFromProto translates c.
func CandidateFromProto(c *policypb.Candidate) policy.Candidate {
	return policy.Candidate{
		ID:            c.GetId(),
		Provider:      c.GetProvider(),
		Key:           c.GetKey(),
		KeyVersion:    c.GetKeyVersion(),
		Account:       c.GetAccount(),
		Model:         c.GetModel(),
		Priority:      int(c.GetPriority()),
		Weight:        int(c.GetWeight()),
		Disabled:      c.GetDisabled(),
		ContextTokens: c.GetContextTokens(),
		Price:         policy.Price{Input: c.GetPrice().GetInput(), Output: c.GetPrice().GetOutput()},
		Labels:        c.GetLabels(),
		Scopes:        scopesFromProto(c.GetScopes()),
	}
}

// RefToProto translates the changing part of c, which has the given index in
// its catalog.
func RefToProto(index int, c policy.Candidate) *policypb.CandidateRef {
	ref := &policypb.CandidateRef{}
	setRef(ref, index, &c)
	return ref
}

// NextRef returns refs with the changing part of c, which has the given index
// in its catalog. It uses what lies behind the end of refs again.
func NextRef(refs []*policypb.CandidateRef, index int, c *policy.Candidate) []*policypb.CandidateRef {
	n := len(refs)
	if n < cap(refs) && refs[:n+1][n] != nil {
		refs = refs[:n+1]
	} else {
		refs = append(refs, &policypb.CandidateRef{})
	}
	setRef(refs[n], index, c)
	return refs
}

// setRef writes the changing part of c into a ref that is empty.
func setRef(ref *policypb.CandidateRef, index int, c *policy.Candidate) {
	ref.Index = uint32(index)
	ref.InFlight = int64(c.Load.InFlight)
	ref.LatencyUs = c.Load.Latency.Microseconds()
	ref.Failures = c.Load.Failures
	for i := range c.Scopes {
		s := &c.Scopes[i]
		ref.Used = setAt(ref.Used, i, s.Used)
		if !s.Resets.IsZero() {
			ref.ResetsNs = setAt(ref.ResetsNs, i, s.Resets.UnixNano())
		}
	}
}

// setAt sets the element i of list, of which what is missing is 0.
func setAt(list []int64, i int, n int64) []int64 {
	if n == 0 {
		return list
	}
	for len(list) < i {
		list = append(list, 0)
	}
	return append(list, n)
}

// CandidateFromRef returns the candidate of a catalog that ref names, with its
// changing part. It reports false if the catalog has no such index.
func CandidateFromRef(catalog []policy.Candidate, ref *policypb.CandidateRef) (policy.Candidate, bool) {
	if int64(ref.GetIndex()) >= int64(len(catalog)) {
		return policy.Candidate{}, false
	}
	c := catalog[ref.GetIndex()]
	changeCandidate(&c, ref, nil)
	return c, true
}

// CandidatesFromRefs returns the candidates of a catalog that refs name, with
// their changing parts. It reports false, and the index that is wrong, if the
// catalog does not have one of them.
func CandidatesFromRefs(catalog []policy.Candidate, refs []*policypb.CandidateRef) (candidates []policy.Candidate, wrong uint32, ok bool) {
	changing := 0 // scopes
	for _, ref := range refs {
		if int64(ref.GetIndex()) >= int64(len(catalog)) {
			return nil, ref.GetIndex(), false
		}
		if len(ref.GetUsed())+len(ref.GetResetsNs()) > 0 {
			changing += len(catalog[ref.GetIndex()].Scopes)
		}
	}
	scopes := make([]policy.Scope, 0, changing)
	candidates = make([]policy.Candidate, len(refs))
	for i, ref := range refs {
		candidates[i] = catalog[ref.GetIndex()]
		scopes = changeCandidate(&candidates[i], ref, scopes)
	}
	return candidates, 0, true
}

// changeCandidate sets the changing part of c. If its scopes change, they are
// copied to the end of the given ones.
func changeCandidate(c *policy.Candidate, ref *policypb.CandidateRef, scopes []policy.Scope) []policy.Scope {
	c.Load = policy.Load{
		InFlight: int(ref.GetInFlight()),
		Latency:  time.Duration(ref.GetLatencyUs()) * time.Microsecond,
		Failures: ref.GetFailures(),
	}
	used, resets := ref.GetUsed(), ref.GetResetsNs()
	if len(used)+len(resets) == 0 {
		return scopes
	}
	n := len(scopes)
	scopes = append(scopes, c.Scopes...)
	c.Scopes = scopes[n:len(scopes):len(scopes)]
	for i := range min(len(used), len(c.Scopes)) {
		c.Scopes[i].Used = used[i]
	}
	for i := range min(len(resets), len(c.Scopes)) {
		if resets[i] != 0 {
			c.Scopes[i].Resets = time.Unix(0, resets[i]).UTC()
		}
	}
	return scopes
}

var (
	kindToProto = map[policy.ScopeKind]policypb.ScopeKind{
		policy.ScopeConcurrency: policypb.ScopeKind_SCOPE_KIND_CONCURRENCY,
		policy.ScopeRequests:    policypb.ScopeKind_SCOPE_KIND_REQUESTS,
		policy.ScopeTokens:      policypb.ScopeKind_SCOPE_KIND_TOKENS,
	}
	kindFromProto = map[policypb.ScopeKind]policy.ScopeKind{
		policypb.ScopeKind_SCOPE_KIND_CONCURRENCY: policy.ScopeConcurrency,
		policypb.ScopeKind_SCOPE_KIND_REQUESTS:    policy.ScopeRequests,
		policypb.ScopeKind_SCOPE_KIND_TOKENS:      policy.ScopeTokens,
	}
)

func scopesToProto(scopes []policy.Scope) []*policypb.Scope {
	if len(scopes) == 0 {
		return nil
	}
	out := make([]*policypb.Scope, len(scopes))
	for i, s := range scopes {
		out[i] = &policypb.Scope{Id: Text(s.ID), Kind: kindToProto[s.Kind], Limit: s.Limit, Used: s.Used, Resets: timeToProto(s.Resets)}
		if s.Window != 0 {
			out[i].Window = durationpb.New(s.Window)
		}
	}
	return out
}

func scopesFromProto(scopes []*policypb.Scope) []policy.Scope {
	if len(scopes) == 0 {
		return nil
	}
	out := make([]policy.Scope, len(scopes))
	for i, s := range scopes {
		out[i] = policy.Scope{
			ID:     s.GetId(),
			Kind:   kindFromProto[s.GetKind()],
			Limit:  s.GetLimit(),
			Window: s.GetWindow().AsDuration(),
			Used:   s.GetUsed(),
			Resets: timeFromProto(s.GetResets()),
		}
	}
	return out
}
