package format

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// The longest that a provider is believed when it asks to be left alone. A
// longer time is cut to these.
const (
	// MaxRateLimit is for rate limits.
	MaxRateLimit = time.Hour
	// MaxQuota is for budgets and windows of a plan.
	MaxQuota = 31 * 24 * time.Hour
)

// longest is how long to wait at most after the errors that tell a time.
var longest = map[policy.Disposition]time.Duration{
	policy.RateLimited:    MaxRateLimit,
	policy.QuotaExhausted: MaxQuota,
}

// resetAt returns when a provider that refused may be asked again, or the zero
// time if it did not say. The first of these that can be read holds, whatever
// stands beside it: retry-after-ms, Retry-After in seconds or as a date, the
// reset in the error itself, and the resets of the limits. A time that has
// passed means at once.
func (d *dialect) resetAt(now time.Time, h http.Header, r reset, longest time.Duration) time.Time {
	wait, ok := toldWait(now, h, r)
	if !ok {
		wait, ok = limitReset(now, h, d.limits)
	}
	return until(now, wait, ok, longest)
}

// toldWait returns how long a provider that refused asks to wait.
func toldWait(now time.Time, h http.Header, r reset) (time.Duration, bool) {
	date := func(s string) (time.Duration, bool) {
		t, err := http.ParseTime(s)
		return t.Sub(now), err == nil
	}
	wait, ok := first(h, "Retry-After-Ms", milliseconds)
	if !ok {
		wait, ok = first(h, "Retry-After", seconds, date)
	}
	if !ok {
		wait, ok = r.wait(now)
	}
	return wait, ok
}

// until returns the instant after a wait, which is cut to what is believed, or
// the zero time if none is known.
func until(now time.Time, wait time.Duration, ok bool, longest time.Duration) time.Time {
	if !ok {
		return time.Time{}
	}
	return now.Add(min(max(wait, 0), longest))
}

// first returns the first value of a field that one of the parsers can read.
func first(h http.Header, field string, parsers ...func(string) (time.Duration, bool)) (time.Duration, bool) {
	for _, value := range h.Values(field) {
		for _, parse := range parsers {
			if d, ok := parse(value); ok {
				return d, true
			}
		}
	}
	return 0, false
}

// forever is longer than any wait that is believed.
const forever = 1e9 // seconds

// seconds reads a number of seconds, which may have a fraction.
func seconds(s string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0) { // also not a number
		return 0, false
	}
	return time.Duration(min(f, forever) * float64(time.Second)), true
}

func milliseconds(s string) (time.Duration, bool) {
	d, ok := seconds(s)
	return d / 1000, ok
}

// duration reads what OpenAI writes, such as 6m0s or 20ms, or seconds.
func duration(s string) (time.Duration, bool) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, true
	}
	return seconds(s)
}

// A reset is when a provider may be asked again, as an error tells it.
type reset struct {
	at float64 // seconds since 1970, or 0
	in float64 // seconds, or 0
}

// regained returns when an account may be used again, in seconds since 1970, as
// Anthropic tells it in words, here in lower case; or 0.
func regained(message string) float64 {
	_, at, _ := strings.Cut(message, "you will regain access on ")
	const layout = "2006-01-02 at 15:04 utc"
	t, err := time.Parse(layout, at[:min(len(at), len(layout))])
	if err != nil {
		return 0
	}
	return float64(t.Unix())
}

// wait returns how long it is until the reset.
func (r reset) wait(now time.Time) (time.Duration, bool) {
	if r.at > 0 {
		return time.Unix(int64(min(r.at, 1e12)), 0).Sub(now), true
	}
	return time.Duration(min(r.in, forever) * float64(time.Second)), r.in > 0
}

// A limit is one of a key's, of which a provider tells in headers.
type limit struct {
	remaining string // how much is left, as a number
	reset     string // when it is whole again: how long that takes, or an instant
}

// limitReset returns the time until the limits are whole again: that of the
// limits that are used up, or else of all, and of these the longest.
func limitReset(now time.Time, h http.Header, limits []limit) (wait time.Duration, ok bool) {
	instant := func(s string) (time.Duration, bool) {
		t, err := time.Parse(time.RFC3339, s)
		return t.Sub(now), err == nil
	}
	usedUp := false
	for _, l := range limits {
		d, readable := first(h, l.reset, duration, instant)
		none := h.Get(l.remaining) == "0"
		switch {
		case !readable || usedUp && !none:
			continue
		case none && !usedUp:
			wait, usedUp = d, true
		default:
			wait = max(wait, d)
		}
		ok = true
	}
	return wait, ok
}
