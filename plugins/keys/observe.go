package keys

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/usherproxy/usher/policy"
)

// maxQuota bounds how long a key is left alone because of its quota. It is the
// longest window of any plan.
const maxQuota = 31 * 24 * time.Hour

// A move says that a breaker opened or closed.
type move struct {
	guard string // what the breaker guards
	Breaker
}

// guardCircuit is what the breakers of formats guard. The others guard a kind of
// subject.
const guardCircuit = "circuit"

// learn takes in how an attempt ended, and returns the breakers that moved. It
// depends on now only where the result is not dated, or is dated ahead.
func (s *state) learn(now time.Time, res *policy.AttemptResult, config *Config) []move {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := endingOf(now, res)
	sl := s.bindLocked(now, &res.Candidate)
	if res.Disposition != policy.Denied {
		sl.key.requests.add(e.began)
		sl.model.requests.add(e.began)
	}
	moves := s.moveLocked(e, res, sl, config)
	s.holdLocked(e.ended, res, sl, config)
	s.observeLocked(e.ended, res, sl, config)
	s.giveBackLocked(e.ended, res.RequestID, !res.Disposition.Failover())
	return moves
}

func endingOf(now time.Time, res *policy.AttemptResult) ending {
	e := ending{request: res.RequestID, ended: res.EndedAt}
	if e.ended.IsZero() || e.ended.After(now) {
		e.ended = now
	}
	e.began = e.ended.Add(-res.Duration)
	e.proved = e.ended
	if first := res.FirstEvent; first > 0 && first < res.Duration {
		e.proved = e.began.Add(first)
	}
	return e
}

// moveLocked tells the breakers of the key.
func (s *state) moveLocked(e ending, res *policy.AttemptResult, sl *slot, config *Config) []move {
	var moves []move
	tell := func(sub *subject, b *breaker, o outcome, f fact, guard string, c BreakerConfig) {
		if b == nil || o == neutral && !b.Probing {
			return
		}
		e.outcome = o
		was := b.Breaker
		if b.end(e, c) {
			moves = append(moves, move{guard, b.Breaker})
		}
		sub.touch(e.ended)
		if b.Breaker != was {
			sub.publishLocked()
			s.tellLocked(sub, f)
		}
	}
	refused := refusedSubject(res, sl)
	for _, sub := range sl.subjects() {
		o := neutral
		switch {
		case res.Disposition == policy.OK:
			o = success
		case sub == refused:
			o = failure
		}
		tell(sub, &sub.refused, o, factRefused, string(sub.id.Kind), config.credential())
	}
	o := circuitOutcome(res)
	if res.Disposition == policy.UpstreamError && !s.chargeLocked(res.RequestID) {
		o = neutral
	}
	b := sl.key.circuitLocked(res.Format, o != neutral)
	tell(sl.key, b, o, circuitFact(res.Format), guardCircuit, config.Breaker)
	return moves
}

// refusedSubject returns whom the provider refused, or nil.
func refusedSubject(res *policy.AttemptResult, sl *slot) *subject {
	if res.Disposition != policy.AuthFailed {
		return nil
	}
	otherwise := sl.key
	if res.Status == http.StatusForbidden {
		otherwise = sl.model
	}
	sub := sl.about(res.About, otherwise)
	if sub == sl.account && sl.ownAccount {
		return sl.key // a new secret may do better
	}
	return sub
}

func circuitOutcome(res *policy.AttemptResult) outcome {
	switch {
	case res.Disposition == policy.OK:
		return success
	case res.Disposition.Failure():
		return failure
	}
	return neutral
}

// holdLocked keeps the instant until when the provider wants to be left alone.
func (s *state) holdLocked(ended time.Time, res *policy.AttemptResult, sl *slot, config *Config) {
	switch res.Disposition {
	case policy.QuotaExhausted:
		sub := sl.about(res.About, sl.key)
		until := holdUntil(ended, res, time.Duration(config.QuotaRetry), maxQuota)
		s.joinLocked(sub, &sub.draft.Quota, Hold{Until: until, At: ended}, factQuota)
	case policy.RateLimited:
		sub := sl.about(res.About, sl.model)
		until := holdUntil(ended, res, time.Duration(config.Cooldown), time.Duration(config.CooldownMax))
		s.joinLocked(sub, &sub.draft.Cooldown, Hold{Until: until, At: ended}, factCooldown)
	}
}

// joinLocked adds to a hold of the subject.
func (s *state) joinLocked(sub *subject, hold *Hold, said Hold, f fact) {
	joined := hold.join(said)
	if joined.equal(*hold) {
		return
	}
	*hold = joined
	sub.publishLocked()
	s.tellLocked(sub, f)
}

// observeLocked keeps what the provider said of its limits.
func (s *state) observeLocked(ended time.Time, res *policy.AttemptResult, sl *slot, config *Config) {
	told := false
	for _, w := range res.Windows {
		w, ok := sound(w, ended)
		if !ok {
			continue
		}
		if spent(w, 0) && w.Kind == "" && resets(w).IsZero() {
			w.Resets = ended.Add(time.Duration(config.QuotaRetry))
		}
		sub := sl.about(w.About, sl.key)
		s.windowLocked(sub, w)
		if limit := perMinute(w); limit > 0 && sub != sl.account {
			told = true
			s.learnedLocked(sub, sub.draft.Learned.told(w.ObservedAt, limit))
		}
		told = told || spent(w, 0)
	}
	sub := sl.about(res.About, sl.key)
	if sub == sl.account && sl.ownAccount {
		sub = sl.key
	}
	if res.Disposition == policy.RateLimited && !told && sub != sl.account {
		s.learnedLocked(sub, sub.draft.Learned.refused(ended, sub.requests.count(ended)))
	}
}

// perMinute returns how many requests a minute the window allows, or 0 if it is
// about something else.
func perMinute(w policy.Window) int {
	if w.Kind != policy.ScopeRequests || w.Length != time.Minute {
		return 0
	}
	return int(min(w.Limit, math.MaxInt32))
}

// windowLocked keeps one observation of a window.
func (s *state) windowLocked(sub *subject, w policy.Window) {
	i := slices.IndexFunc(sub.draft.Windows, func(o policy.Window) bool { return o.Name == w.Name })
	var was policy.Window
	if i >= 0 {
		was = sub.draft.Windows[i]
	}
	windows, ok := withWindow(sub.draft.Windows, w)
	if !ok {
		return
	}
	sub.draft.Windows = windows
	sub.publishLocked()
	if i < 0 || worthTelling(was, w) {
		s.tellLocked(sub, windowFact(w.Name))
	}
}

// worthTelling reports whether others would decide otherwise if they knew what
// became of a window: rates change with every request.
func worthTelling(was, is policy.Window) bool {
	if is.Kind != "" {
		return spent(is, 0) || spent(was, 0)
	}
	return math.Round(100*was.Used) != math.Round(100*is.Used) || is.Resets.Sub(was.Resets).Abs() > time.Second
}

// learnedLocked keeps what was learned of the limit of a key or a model.
func (s *state) learnedLocked(sub *subject, l Learned) {
	was := sub.draft.Learned
	if was == l {
		return
	}
	sub.draft.Learned = l
	sub.touch(l.Since, l.CandidateAt)
	sub.publishLocked()
	if l.Limit != was.Limit || l.Since.Sub(was.Since) > learnedFor/6 {
		s.tellLocked(sub, factLearned)
	}
}

// holdUntil returns what the provider said, but no more than limit from the
// end of the attempt on; if it said nothing, it is about retry.
func holdUntil(ended time.Time, res *policy.AttemptResult, retry, limit time.Duration) time.Time {
	if res.Until.IsZero() {
		return ended.Add(jitter(retry, res.RequestID))
	}
	if latest := ended.Add(limit); res.Until.After(latest) {
		return latest
	}
	return res.Until
}
