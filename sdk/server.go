package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// server is the service that a plugin process offers to its host.
type server struct {
	policypb.UnimplementedPolicyServiceServer

	name, version string
	capabilities  []string
	definitions   []Definition
	ctx           context.Context // ends when the process is about to end

	configuring sync.Mutex // held by Configure, which may take long

	mu        sync.RWMutex // guards the maps
	instances map[string]*instance
	catalogs  map[string]catalog
	sessions  map[*session]struct{}

	revoked func(*policypb.Revoked) // hears what is revoked, if set before the first call
}

// A catalog is a list of candidates, and the index of each by its ID.
type catalog struct {
	candidates []policy.Candidate
	index      map[string]uint32
}

// An instance is one configured policy.
type instance struct {
	name     string // of the policy
	policies Policies
	tickets  *ticketTable // nil without an admission policy
}

var _ policypb.PolicyServiceServer = (*server)(nil)

func (c catalog) lookup(id string) (index uint32, ok bool) {
	index, ok = c.index[id]
	return index, ok
}

func newServer(ctx context.Context, name, version string, definitions []Definition) *server {
	return &server{
		name: name, version: version, capabilities: []string{wire.CapabilitySession, wire.CapabilityCatalogParts}, definitions: definitions, ctx: ctx,
		instances: make(map[string]*instance),
		catalogs:  make(map[string]catalog),
		sessions:  make(map[*session]struct{}),
	}
}

func (s *server) GetInfo(context.Context, *policypb.GetInfoRequest) (*policypb.GetInfoResponse, error) {
	info := &policypb.GetInfoResponse{Name: s.name, Version: s.version, Capabilities: s.capabilities}
	for _, d := range s.definitions {
		info.Policies = append(info.Policies, d.name)
		details := &policypb.PolicyInfo{Name: d.name}
		for _, o := range d.options {
			details.Options = append(details.Options, &policypb.OptionInfo{Name: o.Name, Type: o.Type, DefaultJson: o.Default})
		}
		info.Details = append(info.Details, details)
	}
	return info, nil
}

func (s *server) ValidateConfig(_ context.Context, req *policypb.ValidateConfigRequest) (*policypb.ValidateConfigResponse, error) {
	d, err := s.definition(req.GetPolicy())
	if err != nil {
		return nil, err
	}
	return &policypb.ValidateConfigResponse{Diagnostics: diagnosticsToProto(d.validate(req.GetConfigJson()))}, nil
}

func (s *server) Configure(ctx context.Context, req *policypb.ConfigureRequest) (*policypb.ConfigureResponse, error) {
	d, err := s.definition(req.GetPolicy())
	if err != nil {
		return nil, err
	}
	s.configuring.Lock()
	defer s.configuring.Unlock()
	in, err := s.instance(req.GetInstance())
	if err == nil { // it exists already
		return &policypb.ConfigureResponse{Kinds: in.kinds()}, nil
	}
	policies, diagnostics := s.build(d, req.GetConfigJson())
	if len(diagnostics) > 0 {
		return &policypb.ConfigureResponse{Diagnostics: diagnosticsToProto(diagnostics)}, nil
	}
	in = &instance{name: d.name, policies: policies}
	if policies.Admission != nil {
		in.tickets = newTicketTable(policies.Admission, func(key ticketKey, why policy.Reason) {
			s.revoke(req.GetInstance(), key, why)
		})
	}
	if err := s.add(ctx, req.GetInstance(), in); err != nil {
		in.close(context.WithoutCancel(ctx))
		return nil, err
	}
	return &policypb.ConfigureResponse{Kinds: in.kinds()}, nil
}

// add makes an instance known, unless ctx has ended: then the host may have
// drained it already, and nobody would ever end it.
func (s *server) add(ctx context.Context, name string, in *instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	s.instances[name] = in
	return nil
}

func (s *server) build(d Definition, config json.RawMessage) (p Policies, diagnostics []Diagnostic) {
	var err error
	func() {
		defer recoverTo(&err)
		p, diagnostics = d.build(s.ctx, config)
	}()
	return p, append(diagnostics, diagnose(err)...)
}

func (s *server) definition(name string) (Definition, error) {
	i := slices.IndexFunc(s.definitions, func(d Definition) bool { return d.name == name })
	if i < 0 {
		return Definition{}, status.Errorf(codes.NotFound, "plugin %s has no policy %q", s.name, name)
	}
	return s.definitions[i], nil
}

func (in *instance) kinds() []policypb.Kind {
	var kinds []policypb.Kind
	if in.policies.Selection != nil {
		kinds = append(kinds, policypb.Kind_KIND_SELECTION)
	}
	if in.policies.Admission != nil {
		kinds = append(kinds, policypb.Kind_KIND_ADMISSION)
		if _, ok := in.policies.Admission.(policy.Restorer); ok {
			kinds = append(kinds, policypb.Kind_KIND_RESTORER)
		}
	}
	if in.policies.Observer != nil {
		kinds = append(kinds, policypb.Kind_KIND_OBSERVER)
	}
	if in.policies.Operable != nil {
		kinds = append(kinds, policypb.Kind_KIND_OPERABLE)
	}
	return kinds
}

func (s *server) SyncCatalog(_ context.Context, req *policypb.SyncCatalogRequest) (*policypb.SyncCatalogResponse, error) {
	sent := catalog{index: make(map[string]uint32)}
	for _, name := range req.GetParts() {
		part, err := s.catalog(name)
		if err != nil {
			return nil, err
		}
		sent.candidates = append(sent.candidates, part.candidates...)
	}
	for _, c := range req.GetCandidates() {
		sent.candidates = append(sent.candidates, wire.CandidateFromProto(c))
	}
	for i := range sent.candidates {
		sent.index[sent.candidates[i].ID] = uint32(i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.GetCatalog() != "" {
		s.catalogs[req.GetCatalog()] = sent
	}
	for _, name := range req.GetForget() {
		delete(s.catalogs, name)
	}
	return &policypb.SyncCatalogResponse{}, nil
}

func (s *server) Observe(ctx context.Context, req *policypb.ObserveRequest) (*policypb.ObserveResponse, error) {
	var results []policy.AttemptResult // all of them, before anybody hears of one
	for _, r := range req.GetResults() {
		catalog, err := s.catalog(r.GetCatalog())
		if err != nil {
			return nil, err
		}
		if c, ok := wire.CandidateFromRef(catalog.candidates, &policypb.CandidateRef{Index: r.GetIndex()}); ok {
			results = append(results, wire.ResultFromProto(c, r))
		}
	}
	for _, name := range req.GetInstances() {
		in, err := s.instance(name)
		if err != nil || in.policies.Observer == nil {
			continue // it was drained meanwhile
		}
		for _, r := range results {
			observe(ctx, in.policies.Observer, r)
		}
	}
	return &policypb.ObserveResponse{}, nil
}

func observe(ctx context.Context, o policy.Observer, res policy.AttemptResult) {
	var panicked error // was logged
	defer recoverTo(&panicked)
	o.Observe(ctx, res)
}

func (s *server) Drain(ctx context.Context, req *policypb.DrainRequest) (*policypb.DrainResponse, error) {
	s.mu.Lock()
	var drained []*instance
	for name, in := range s.instances {
		if req.GetInstance() == "" || req.GetInstance() == name {
			drained = append(drained, in)
			delete(s.instances, name)
		}
	}
	s.mu.Unlock()
	for _, in := range drained {
		in.close(ctx)
	}
	return &policypb.DrainResponse{}, nil
}

func (in *instance) close(ctx context.Context) {
	if in.tickets != nil {
		in.tickets.close(ctx)
	}
	if in.policies.Close == nil {
		return
	}
	var err error
	func() {
		defer recoverTo(&err)
		err = in.policies.Close(ctx)
	}()
	if err != nil {
		slog.ErrorContext(ctx, "close policies", "policy", in.name, "error", err)
	}
}

func (s *server) instance(name string) (*instance, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	in, ok := s.instances[name]
	if !ok {
		return nil, status.Errorf(codes.FailedPrecondition, "unknown instance %q", name)
	}
	return in, nil
}

func (s *server) catalog(name string) (catalog, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := s.catalogs[name]
	if !ok {
		return catalog{}, status.Errorf(codes.FailedPrecondition, "unknown catalog %q", name)
	}
	return c, nil
}

func diagnosticsToProto(ds []Diagnostic) []*policypb.Diagnostic {
	out := make([]*policypb.Diagnostic, len(ds))
	for i, d := range ds {
		out[i] = &policypb.Diagnostic{Option: wire.Text(d.Option), Message: wire.Text(d.Message)}
	}
	return out
}

// recoverTo turns a panic into an error, and logs where it came from.
func recoverTo(err *error) {
	if r := recover(); r != nil {
		slog.Error("policy panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = fmt.Errorf("policy panicked: %v", r)
	}
}
