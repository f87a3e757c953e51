package keys

import (
	"net/http"
	"time"

	"github.com/usherproxy/usher/policy"
)

// maxQuota bounds how long a key is left alone because of its quota. It is the
// longest window of any plan.
const maxQuota = 31 * 24 * time.Hour

// A lesson is what the end of an attempt says to each breaker of its key.
type lesson struct {
	credential, permission, circuit outcome
}

func lessonOf(res *policy.AttemptResult) lesson {
	switch d := res.Disposition; {
	case d == policy.OK:
		return lesson{success, success, success}
	case d == policy.AuthFailed && res.Status == http.StatusForbidden:
		return lesson{permission: failure}
	case d == policy.AuthFailed:
		return lesson{credential: failure}
	case d.Failure():
		return lesson{circuit: failure}
	}
	return lesson{}
}

// A move says that a breaker opened or closed.
type move struct {
	guard string // what the breaker guards
	Breaker
}

// What a breaker guards: the key altogether, the key for one model, or the key
// for one format.
const (
	guardKey     = "key"
	guardModel   = "model"
	guardCircuit = "circuit"
)

// learn takes in how an attempt ended, and returns the breakers that moved. It
// depends on now only where the result is not dated, or is dated ahead.
func (s *state) learn(now time.Time, res *policy.AttemptResult, config *Config) []move {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := endingOf(now, res)
	moves := s.moveLocked(now, e, res, config)
	s.holdLocked(now, e.ended, res, config)
	s.giveBackLocked(now, res.RequestID, !res.Disposition.Failover())
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
func (s *state) moveLocked(now time.Time, e ending, res *policy.AttemptResult, config *Config) []move {
	l := lessonOf(res)
	if res.Disposition == policy.UpstreamError && !s.chargeLocked(res.RequestID) {
		l.circuit = neutral
	}
	a := account{res.Candidate.Provider, res.Candidate.Key}
	r := s.records[a]
	if l != (lesson{}) {
		r = s.recordLocked(now, a)
	}
	if r == nil {
		return nil
	}
	var moves []move
	tell := func(b *breaker, o outcome, guard string, c BreakerConfig) {
		e.outcome = o
		if b.end(e, c) {
			moves = append(moves, move{guard, b.Breaker})
		}
		r.touch(e.ended, b.Until)
	}
	tell(&r.credential, l.credential, guardKey, config.credential())
	if m := r.modelFor(res.Candidate.Model, l.permission == failure); m != nil {
		tell(&m.permission, l.permission, guardModel, config.credential())
	}
	if b := r.circuitFor(res.Format, l.circuit != neutral); b != nil {
		tell(b, l.circuit, guardCircuit, config.Breaker)
	}
	return moves
}

// holdLocked keeps the instant until when the provider wants to be left alone.
func (s *state) holdLocked(now, ended time.Time, res *policy.AttemptResult, config *Config) {
	a := account{res.Candidate.Provider, res.Candidate.Key}
	switch res.Disposition {
	case policy.QuotaExhausted:
		r := s.recordLocked(now, a)
		r.quota = later(r.quota, holdUntil(ended, res, time.Duration(config.QuotaRetry), maxQuota))
		r.touch(r.quota)
	case policy.RateLimited:
		r := s.recordLocked(now, a)
		m := r.modelFor(res.Candidate.Model, true)
		m.cooldown = later(m.cooldown, holdUntil(ended, res, time.Duration(config.Cooldown), time.Duration(config.CooldownMax)))
		r.touch(m.cooldown)
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
