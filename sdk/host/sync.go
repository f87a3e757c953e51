package host

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// maxPart is how many bytes of candidates are sent in one message, about, to a
// plugin that takes catalogs in parts. What gRPC allows everywhere is 4 MiB.
const maxPart = 256 << 10

// partLength is how many candidates a part has on average, if they are small.
const partLength = 128

// A stock knows what parts of catalogs a process has.
type stock struct {
	mu    sync.Mutex
	parts map[string]bool     // those that it has acknowledged
	made  map[string][]string // by catalog, the parts that it is made of
}

// SyncCatalog sends a catalog, and lets the process forget others by name. A
// large catalog is sent in parts, and of these only what the process does not
// have. It is known to the process when SyncCatalog returns nil, and never
// before all of it is there.
func (c *Client) SyncCatalog(ctx context.Context, catalog *Catalog, forget ...string) error {
	if catalog == nil {
		return c.sync(ctx, &policypb.SyncCatalogRequest{Forget: c.stock.forget(forget)})
	}
	whole := &policypb.SyncCatalogRequest{Catalog: catalog.Name, Candidates: candidatesToProto(catalog.Candidates)}
	if !c.takesParts.Load() || proto.Size(whole) <= maxPart {
		whole.Forget = c.stock.forget(forget)
		return c.sync(ctx, whole)
	}
	err := c.syncParts(ctx, whole, catalog, forget)
	if Unknown(err) { // somebody has started the process again, behind its socket
		c.stock.clear()
		err = c.syncParts(ctx, whole, catalog, forget)
	}
	return err
}

// syncParts sends the parts of a catalog that the process does not have, and
// then what it is made of.
func (c *Client) syncParts(ctx context.Context, whole *policypb.SyncCatalogRequest, catalog *Catalog, forget []string) error {
	var names []string
	var parts []*policypb.SyncCatalogRequest
	for from, to := range split(catalog.Candidates, whole.GetCandidates()) {
		part, err := NewCatalog(catalog.Candidates[from:to])
		if err != nil {
			return err
		}
		name := "part-" + part.Name // a catalog of the same candidates is forgotten at another time
		names = append(names, name)
		parts = append(parts, &policypb.SyncCatalogRequest{Catalog: name, Candidates: whole.GetCandidates()[from:to]})
	}
	c.stock.make(catalog.Name, names)
	for _, part := range parts {
		if c.stock.has(part.GetCatalog()) {
			continue
		}
		if err := c.sync(ctx, part); err != nil {
			return err
		}
		c.stock.add(part.GetCatalog())
	}
	return c.sync(ctx, &policypb.SyncCatalogRequest{Catalog: catalog.Name, Parts: names, Forget: c.stock.forget(forget)})
}

func (c *Client) sync(ctx context.Context, req *policypb.SyncCatalogRequest) error {
	_, err := c.rpc.SyncCatalog(ctx, req)
	if status.Code(err) == codes.ResourceExhausted {
		err = fmt.Errorf("a message of %d bytes is more than the plugin takes; it should take 64 MiB, or catalogs in parts (capability %s): %w",
			proto.Size(req), wire.CapabilityCatalogParts, err)
	}
	return err
}

// split yields the bounds of the parts of a catalog, whose candidates are given
// as themselves and as what is sent. A part ends at a candidate whose ID says
// so, so that one that is added or removed changes one part and not all after
// it; or when it is full.
func split(candidates []policy.Candidate, sent []*policypb.Candidate) func(yield func(from, to int) bool) {
	return func(yield func(from, to int) bool) {
		from, size := 0, 0
		for i := range sent {
			size += proto.Size(sent[i])
			sum := fnv.New32a()
			_, _ = sum.Write([]byte(candidates[i].ID)) // never fails
			if sum.Sum32()%partLength == 0 || size >= maxPart || i == len(sent)-1 {
				if !yield(from, i+1) {
					return
				}
				from, size = i+1, 0
			}
		}
	}
}

func candidatesToProto(candidates []policy.Candidate) []*policypb.Candidate {
	out := make([]*policypb.Candidate, len(candidates))
	for i, cand := range candidates {
		out[i] = wire.CandidateToProto(cand)
	}
	return out
}

// make notes what a catalog is made of: its parts are not forgotten.
func (s *stock) make(catalog string, parts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		s.made, s.parts = make(map[string][]string), make(map[string]bool)
	}
	s.made[catalog] = parts
}

func (s *stock) add(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[part] = true
}

func (s *stock) has(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[part]
}

func (s *stock) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.parts)
}

// forget returns the names of catalogs and of those of their parts that no
// other catalog is made of.
func (s *stock) forget(catalogs []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range catalogs {
		delete(s.made, name)
	}
	used := make(map[string]bool)
	for _, parts := range s.made {
		for _, part := range parts {
			used[part] = true
		}
	}
	catalogs = slices.Clone(catalogs)
	for part := range s.parts {
		if !used[part] {
			catalogs = append(catalogs, part)
			delete(s.parts, part)
		}
	}
	return catalogs
}
