package format

import (
	"net/http"
	"strconv"
	"time"
)

// The longest that a provider is believed when it asks to be left alone. A
// longer time is cut to these.
const (
	// MaxRateLimit is for rate limits.
	MaxRateLimit = time.Hour
	// MaxQuota is for budgets and windows of a plan.
	MaxQuota = 31 * 24 * time.Hour
)

// resetAt returns when a provider that refused may be asked again, or the zero
// time if it did not say. The first of these that can be read holds, whatever
// stands beside it: retry-after-ms, Retry-After in seconds or as a date, the
// reset in the error itself, and the resets of OpenAI's limits. A time that has
// passed means at once.
func resetAt(now time.Time, h http.Header, e providerError, longest time.Duration) time.Time {
	date := func(s string) (time.Duration, bool) {
		t, err := http.ParseTime(s)
		return t.Sub(now), err == nil
	}
	wait, ok := first(h, "Retry-After-Ms", milliseconds)
	if !ok {
		wait, ok = first(h, "Retry-After", seconds, date)
	}
	if !ok {
		wait, ok = e.reset(now)
	}
	if !ok {
		wait, ok = limitReset(h)
	}
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

// reset returns how long it is until the instant that the error names.
func (e providerError) reset(now time.Time) (time.Duration, bool) {
	if e.resetsAt > 0 {
		return time.Unix(int64(min(e.resetsAt, 1e12)), 0).Sub(now), true
	}
	return time.Duration(min(e.resetsIn, forever) * float64(time.Second)), e.resetsIn > 0
}

// limitReset returns the time until OpenAI's limits on requests and tokens are
// whole again: that of the limits that are used up, or else of all, and of
// these the longest.
func limitReset(h http.Header) (wait time.Duration, ok bool) {
	usedUp := false
	for _, limit := range []string{"Requests", "Tokens"} {
		d, readable := first(h, "X-Ratelimit-Reset-"+limit, duration)
		none := h.Get("X-Ratelimit-Remaining-"+limit) == "0"
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
