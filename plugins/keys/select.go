package keys

import (
	"context"
	"slices"
	"time"

	"github.com/usherproxy/usher/plugins/keys/internal/board"
	"github.com/usherproxy/usher/policy"
)

// selector is one instance: what was learned, seen with one configuration.
type selector struct {
	*Plugin
	state  *state
	board  *board.Board // or nil
	config Config
	scales []scale
	last   Word // of the order
}

var (
	_ policy.Selector = (*selector)(nil)
	_ policy.Observer = (*selector)(nil)
)

// Select judges and ranks the candidates. It does not block.
func (s *selector) Select(_ context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	if len(req.Candidates) == 0 {
		return policy.Selection{}, nil
	}
	d := decision{selector: s, req: req, now: s.Clock(), ranking: rankings.Get().(*ranking)}
	defer rankings.Put(d.ranking)
	d.slots = s.state.slotsFor(d.now, req)
	d.draw()
	d.judge(false)
	if len(d.places) == 0 {
		d.judge(true)
	}
	d.chooseProbe()
	return policy.Selection{Verdicts: d.rank()}, nil
}

// A decision is one selection under way.
type decision struct {
	*selector
	*ranking
	req   *policy.SelectRequest
	now   time.Time
	slots []*slot
	seed  Seed
	view  view

	// verdicts has one place for each candidate. Those of skipped ones are
	// filled in from the end.
	verdicts []policy.Verdict
	skipped  int
}

// draw rolls the dice.
func (d *decision) draw() {
	roll := d.Dice()
	d.seed = roll
	d.view = view{now: d.now, request: d.req.Request, plans: d.config.Plans, explore: roll.explores()}
	if d.req.Request.Affinity != "" && d.config.Order.has(Affinity) {
		session := sessionOf(d.req.Request)
		d.seed = Seed(session)
		d.view.bound = d.sessions.find(d.now, session)
		d.sessions.expect(d.now, d.req.Request.ID, session)
	}
}

// judge gives each candidate its verdict, or its place. With doubt it believes
// in no estimate of the prompt's size: those are too high on purpose.
func (d *decision) judge(doubt bool) {
	n := len(d.req.Candidates)
	d.ranking.reset()
	if d.verdicts == nil {
		d.verdicts = make([]policy.Verdict, n)
	}
	d.skipped = 0
	whole := ofRequest(d.req.Request.Scopes)
	f := d.newFacts(doubt)
	for i := range d.req.Candidates {
		c := &d.req.Candidates[i]
		d.gather(&f, i)
		switch {
		case whole.Reason != "":
			d.place(&f, i, &whole)
		case !anyFull(c.Scopes) && f.easy(d.now):
			d.place(&f, i, nil)
		default:
			d.judgeOne(&f, i)
		}
	}
}

// judgeOne gives a candidate with which something may be wrong its verdict, or
// its place.
func (d *decision) judgeOne(f *Facts, i int) {
	switch status, why := ofCandidate(d.now, f); status {
	case policy.Skipped:
		d.skip(f.Candidate, why)
	case policy.Busy:
		d.place(f, i, &why)
	default:
		d.place(f, i, nil)
	}
}

func (d *decision) newFacts(doubt bool) Facts {
	return Facts{
		Request: d.req.Request, QuotaReserve: d.config.QuotaReserve / 100,
		NoCircuits: d.config.Breaker.Failures == 0, DoubtEstimate: doubt,
	}
}

// gather sets f to what is known of the i-th candidate.
func (d *decision) gather(f *Facts, i int) {
	d.slots[i].facts(f, &d.req.Candidates[i])
	f.KeyRequests, f.ModelRequests = 0, 0
	if f.Key != nil && f.Key.Learned.Limit > 0 || f.Model != nil && f.Model.Learned.Limit > 0 {
		d.state.mu.Lock()
		f.KeyRequests, f.ModelRequests = d.slots[i].key.requests.count(d.now), d.slots[i].model.requests.count(d.now)
		d.state.mu.Unlock()
	}
}

func (d *decision) skip(c *policy.Candidate, why policy.Why) {
	d.skipped++
	d.verdicts[len(d.verdicts)-d.skipped] = policy.Verdict{Candidate: c.ID, Status: policy.Skipped, Why: why}
}

// place ranks the i-th candidate, which is busy if there is a reason.
func (d *decision) place(f *Facts, i int, why *policy.Why) {
	c, sl := f.Candidate, d.slots[i]
	p := place{tier: tierOf(c), index: int32(i), why: -1}
	if why != nil {
		p.tier |= tierBusy
		p.why = int32(len(d.whys))
		d.whys = append(d.whys, *why)
	} else if f.Probe() {
		d.due = append(d.due, int32(len(d.places)))
	}
	for _, s := range d.scales {
		p.words = p.words<<s.bits | s.rank(&d.view, f, sl)
	}
	switch d.last {
	case Weighted:
		p.draw = mix(uint64(d.seed) ^ sl.hash)
	case LeastRecentlyUsed:
		p.draw = uint64(sl.key.usedAt.Load())
	}
	d.places = append(d.places, p)
}

// chooseProbe lets the request probe the first due candidate of its best tier of
// eligible ones, and skips the other due ones: they are left to a request that
// comes to them first.
func (d *decision) chooseProbe() {
	if len(d.due) == 0 {
		return
	}
	best := d.places[0].tier
	for i := range d.places {
		best = min(best, d.places[i].tier)
	}
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	chosen := false
	f := d.newFacts(true)
	for _, at := range d.due {
		p := &d.places[at]
		c, sl := &d.req.Candidates[p.index], d.slots[p.index]
		sl.facts(&f, c)
		why := f.probeDue()
		if p.tier == best && !chosen {
			status, now := ofCandidate(d.now, &f)
			switch {
			case status == policy.Eligible && !f.Probe():
				continue // it has just closed
			case status == policy.Eligible:
				chosen = true
				p.tier &^= tierNoProbe
				d.state.takeProbeLocked(d.now, d.req.Request, sl, &d.config)
				continue
			case status == policy.Skipped:
				why = now // somebody was faster
			}
		}
		d.skip(c, why)
		p.index = -1
	}
	d.places = slices.DeleteFunc(d.places, func(p place) bool { return p.index < 0 })
}

// rank returns the verdicts in their final order, those of skipped candidates
// last and as they came.
func (d *decision) rank() []policy.Verdict {
	start := uint64(0)
	if d.last == Weighted && len(d.places) > 0 {
		d.weigh(d.req.Candidates)
		start = mix(uint64(d.seed))
	}
	d.sort(start)
	for i := range d.places {
		p := &d.places[i]
		v := policy.Verdict{Candidate: d.req.Candidates[p.index].ID, Status: policy.Eligible}
		if p.why >= 0 {
			v.Status, v.Why = policy.Busy, d.whys[p.why]
		}
		d.verdicts[i] = v
	}
	if len(d.places) > 0 && d.places[0].why < 0 && d.config.Order.has(LeastRecentlyUsed) {
		d.slots[d.places[0].index].key.usedAt.Store(d.now.UnixNano())
	}
	slices.Reverse(d.verdicts[len(d.places):])
	return d.verdicts
}

// Observe learns from the end of an attempt. It does not block.
func (s *selector) Observe(ctx context.Context, res policy.AttemptResult) {
	now := s.Clock()
	s.sessions.ended(now, &res)
	for _, m := range s.state.learn(now, &res, &s.config) {
		s.logMove(ctx, &res, m)
	}
}
