package keys

import (
	"context"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// selector is one instance: what the plugin learned, seen with one
// configuration.
type selector struct {
	*Plugin
	config Config
}

var (
	_ policy.Selector = (*selector)(nil)
	_ policy.Observer = (*selector)(nil)
)

// Select judges and ranks the candidates. It does not block.
func (s *selector) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	verdicts, probe := s.judge(s.Clock(), req)
	return policy.Selection{Verdicts: s.rank(req, verdicts, probe)}, nil
}

// judge returns the verdict on each candidate, and the index of the one that
// the request probes, or -1.
func (s *selector) judge(now time.Time, req *policy.SelectRequest) (verdicts []policy.Verdict, probe int) {
	verdicts = make([]policy.Verdict, len(req.Candidates))
	var due []int
	var f Facts
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for i := range req.Candidates {
		s.state.gatherLocked(&f, req.Request, &req.Candidates[i], &s.config)
		v := &verdicts[i]
		v.Candidate = f.Candidate.ID
		v.Status, v.Why = Evaluate(now, &f)
		if f.Probe() && (v.Status == policy.Eligible || v.Reason == policy.ReasonContextTooSmall) {
			due = append(due, i)
		}
	}
	doubtContext(verdicts)
	return verdicts, s.chooseProbeLocked(now, req, verdicts, due)
}

// doubtContext makes candidates with too small a context eligible if nothing
// else is left: the size of the prompt is an estimate, too high on purpose.
func doubtContext(verdicts []policy.Verdict) {
	if slices.ContainsFunc(verdicts, func(v policy.Verdict) bool { return v.Status != policy.Skipped }) {
		return
	}
	for i := range verdicts {
		if v := &verdicts[i]; v.Reason == policy.ReasonContextTooSmall {
			v.Status, v.Why = policy.Eligible, policy.Why{}
		}
	}
}

// chooseProbeLocked lets the request probe the first due candidate of its best
// tier of eligible ones, and skips the other due ones: they are left to a
// request that comes to them first.
func (s *selector) chooseProbeLocked(now time.Time, req *policy.SelectRequest, verdicts []policy.Verdict, due []int) int {
	probe := -1
	if len(due) == 0 {
		return probe
	}
	best := bestTier(req.Candidates, verdicts)
	for _, i := range due {
		c, v := &req.Candidates[i], &verdicts[i]
		switch {
		case v.Status != policy.Eligible:
		case probe < 0 && tierOf(c) == best:
			probe = i
			s.state.takeProbeLocked(now, req.Request, c, &s.config)
		default:
			var f Facts
			s.state.gatherLocked(&f, req.Request, c, &s.config)
			v.Status, v.Why = policy.Skipped, f.probeDue()
		}
	}
	return probe
}

// bestTier returns the tier of the eligible candidates that are ranked first.
func bestTier(candidates []policy.Candidate, verdicts []policy.Verdict) tier {
	var best *policy.Candidate
	for i := range candidates {
		c := &candidates[i]
		if verdicts[i].Status == policy.Eligible && (best == nil || tierOf(c).compare(tierOf(best)) < 0) {
			best = c
		}
	}
	if best == nil {
		return tier{}
	}
	return tierOf(best)
}

// rank returns the verdicts in their final order, those of skipped candidates
// last.
func (s *selector) rank(req *policy.SelectRequest, verdicts []policy.Verdict, probe int) []policy.Verdict {
	seed := s.seed(req.Request)
	places := make([]place, 0, len(verdicts))
	for i := range verdicts {
		if verdicts[i].Status == policy.Skipped {
			continue
		}
		p := newPlace(s.config.Order, seed, &req.Candidates[i], i)
		p.busy, p.probe = verdicts[i].Status == policy.Busy, i == probe
		places = append(places, p)
	}
	slices.SortFunc(places, place.compare)

	ranked := make([]policy.Verdict, 0, len(verdicts))
	for _, p := range places {
		ranked = append(ranked, verdicts[p.index])
	}
	for i := range verdicts {
		if verdicts[i].Status == policy.Skipped {
			ranked = append(ranked, verdicts[i])
		}
	}
	return ranked
}

// seed is the same for all requests of a session.
func (s *selector) seed(req *policy.Request) Seed {
	if s.config.Affinity && s.config.Order == Weighted && req.Affinity != "" {
		return Seed(hash(0, req.Affinity))
	}
	return s.Dice()
}

// Observe learns from the end of an attempt. It does not block.
func (s *selector) Observe(ctx context.Context, res policy.AttemptResult) {
	for _, m := range s.state.learn(s.Clock(), &res, &s.config) {
		s.logMove(ctx, &res, m)
	}
}
