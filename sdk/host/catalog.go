package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A Catalog is a list of candidates that host and plugin know by a name, so
// that a request can name its candidates by their index. It is immutable.
type Catalog struct {
	// Name stands for the content: catalogs of equal content have equal names.
	Name string

	// Candidates are the candidates, without their load.
	Candidates []policy.Candidate

	index map[string]int // by candidate ID
}

// NewCatalog returns the catalog of candidates, whose IDs must be distinct. What
// changes with every request, which is the load and how much of a scope is
// used until when, is not part of it.
func NewCatalog(candidates []policy.Candidate) (*Catalog, error) {
	c := &Catalog{Candidates: make([]policy.Candidate, len(candidates)), index: make(map[string]int, len(candidates))}
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for i, cand := range candidates {
		if _, ok := c.index[cand.ID]; ok {
			return nil, fmt.Errorf("two candidates with the ID %q", cand.ID)
		}
		c.index[cand.ID] = i
		c.Candidates[i] = unchanging(cand)
		if err := enc.Encode(c.Candidates[i]); err != nil {
			return nil, fmt.Errorf("hash candidate %q: %w", cand.ID, err)
		}
	}
	c.Name = hex.EncodeToString(sum.Sum(nil)[:8])
	return c, nil
}

// unchanging returns the part of c that is the same for all requests.
func unchanging(c policy.Candidate) policy.Candidate {
	c.Load = policy.Load{}
	c.Scopes = slices.Clone(c.Scopes)
	for i := range c.Scopes {
		c.Scopes[i].Used, c.Scopes[i].Resets = 0, time.Time{}
	}
	return c
}

// refs appends references to candidates to the given ones.
func (c *Catalog) refs(refs []*policypb.CandidateRef, candidates []policy.Candidate) ([]*policypb.CandidateRef, error) {
	for i := range candidates {
		n, ok := c.index[candidates[i].ID]
		if !ok {
			return nil, fmt.Errorf("candidate %q is not in catalog %s", candidates[i].ID, c.Name)
		}
		refs = wire.NextRef(refs, n, &candidates[i])
	}
	return refs, nil
}

func (c *Catalog) lookup(id string) (uint32, bool) {
	i, ok := c.index[id]
	return uint32(i), ok
}
