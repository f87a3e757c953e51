package format

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// A windowRow tells which fields of an answer's header are about one of a
// provider's limits.
type windowRow struct {
	name   string
	about  policy.Subject
	kind   policy.ScopeKind // none for a plan's quota
	length time.Duration    // 0 if it is not known

	// limit and remaining hold numbers, used a part of the limit, where whole
	// is all of it. reset holds when the window begins anew.
	limit, remaining string
	used             string
	whole            float64
	reset            string

	// refills says that the limit is refilled all the time: at reset it is
	// whole again, and there is room for one request sooner.
	refills bool

	// status is "rejected" where the limit refuses. minutes holds the length.
	status, minutes string
}

const (
	minute = time.Minute
	day    = 24 * time.Hour
	week   = 7 * day
	month  = 30 * day
)

// windowRows are the limits that providers tell of in headers.
var windowRows = slices.Concat(
	// OpenAI (platform.openai.com/docs/guides/rate-limits, "Rate limits in
	// headers"), and with the same names Azure, Groq (where requests are those
	// of a day), xAI, Fireworks and others: limits of a model, refilled all the
	// time.
	[]windowRow{
		xRateLimit("Requests", "requests", policy.ScopeRequests, policy.SubjectModel, 0, true),
		xRateLimit("Tokens", "tokens", policy.ScopeTokens, policy.SubjectModel, 0, true),
		xRateLimit("Tokens-Prompt", "tokens-prompt", policy.ScopeTokens, policy.SubjectModel, 0, true),
		xRateLimit("Tokens-Generated", "tokens-generated", policy.ScopeTokens, policy.SubjectModel, 0, true),
	},
	// Cerebras (inference-docs.cerebras.ai/support/rate-limits) and Mistral,
	// whose names tell the window.
	[]windowRow{
		xRateLimit("Requests-Day", "requests-day", policy.ScopeRequests, policy.SubjectModel, day, false),
		xRateLimit("Requests-Minute", "requests-minute", policy.ScopeRequests, policy.SubjectModel, minute, false),
		xRateLimit("Req-Minute", "requests-minute", policy.ScopeRequests, policy.SubjectModel, minute, false),
		xRateLimit("Tokens-Day", "tokens-day", policy.ScopeTokens, policy.SubjectModel, day, false),
		xRateLimit("Tokens-Minute", "tokens-minute", policy.ScopeTokens, policy.SubjectModel, minute, false),
		xRateLimit("Tokens-Month", "tokens-month", "", policy.SubjectAccount, month, false),
	},
	// Without a unit: what OpenRouter, Together and many gateways say of the
	// key, and the drafts of the IETF up to draft-ietf-httpapi-ratelimit-headers-07.
	[]windowRow{
		{
			name: "key-requests", about: policy.SubjectKey, kind: policy.ScopeRequests,
			limit: "X-Ratelimit-Limit", remaining: "X-Ratelimit-Remaining", reset: "X-Ratelimit-Reset",
		},
		{
			name: "key-requests", about: policy.SubjectKey, kind: policy.ScopeRequests,
			limit: "Ratelimit-Limit", remaining: "Ratelimit-Remaining", reset: "Ratelimit-Reset",
		},
	},
	// Anthropic (platform.claude.com/docs/en/api/rate-limits, "Response
	// headers"): limits of a minute, of a model, refilled all the time.
	[]windowRow{
		anthropicLimit("Requests", "requests", policy.ScopeRequests),
		anthropicLimit("Tokens", "tokens", policy.ScopeTokens),
		anthropicLimit("Input-Tokens", "input-tokens", policy.ScopeTokens),
		anthropicLimit("Output-Tokens", "output-tokens", policy.ScopeTokens),
	},
	// Anthropic's plans, as its clients get them: a part of 1, and the instant
	// in Unix seconds. Of the windows of single models, such as 7d_opus, only
	// the one that refuses the request is sure to be about its model: see
	// modelPlan.
	[]windowRow{anthropicPlan("5h", "5h", 5*time.Hour), anthropicPlan("7d", "weekly", week)},
	// Codex, OpenAI's plans: per cent, and the window's length in minutes, by
	// which it is named; 0 is no window.
	[]windowRow{codexPlan("Primary", "primary"), codexPlan("Secondary", "secondary")},
)

func xRateLimit(unit, name string, kind policy.ScopeKind, about policy.Subject, length time.Duration, refills bool) windowRow {
	return windowRow{
		name: name, about: about, kind: kind, length: length, refills: refills,
		limit: "X-Ratelimit-Limit-" + unit, remaining: "X-Ratelimit-Remaining-" + unit, reset: "X-Ratelimit-Reset-" + unit,
	}
}

func anthropicLimit(unit, name string, kind policy.ScopeKind) windowRow {
	at := "Anthropic-Ratelimit-" + unit
	return windowRow{
		name: name, about: policy.SubjectModel, kind: kind, length: minute, refills: true,
		limit: at + "-Limit", remaining: at + "-Remaining", reset: at + "-Reset",
	}
}

func anthropicPlan(window, name string, length time.Duration) windowRow {
	at := "Anthropic-Ratelimit-Unified-" + window
	return windowRow{
		name: name, about: policy.SubjectAccount, length: length,
		used: at + "-Utilization", whole: 1, reset: at + "-Reset", status: at + "-Status",
	}
}

func codexPlan(window, name string) windowRow {
	at := "X-Codex-" + window
	return windowRow{
		name: name, about: policy.SubjectAccount,
		used: at + "-Used-Percent", whole: 100, reset: at + "-Reset-At", minutes: at + "-Window-Minutes",
	}
}

// windows returns the limits that the header of an answer tells of. One that
// refuses and says when to come back, which is back, knows better than a limit
// that is refilled all the time when there is room for one request.
func windows(now, back time.Time, h http.Header) []policy.Window {
	if !tellsLimits(h) {
		return nil
	}
	var found []policy.Window
	for i := range windowRows {
		w, ok := windowRows[i].read(now, h)
		if !ok {
			continue
		}
		if windowRows[i].refills && w.Used == 1 && !back.IsZero() && (w.Resets.IsZero() || back.Before(w.Resets)) {
			w.Resets = back
		}
		found = append(found, w)
	}
	if w, ok := modelPlan(now, h); ok {
		found = append(found, w)
	}
	return found
}

// tellsLimits reports whether a header has any of the fields that a row or a
// plan is read from. Most answers have none, and every answer is asked.
func tellsLimits(h http.Header) bool {
	for field := range h {
		if strings.Contains(field, "Ratelimit") || strings.HasPrefix(field, "X-Codex-") {
			return true
		}
	}
	return false
}

// modelPlan returns the window of one model in a plan of Anthropic's, if it
// refuses the request.
func modelPlan(now time.Time, h http.Header) (policy.Window, bool) {
	const at = "Anthropic-Ratelimit-Unified-"
	w := policy.Window{Name: "weekly-model", About: policy.SubjectModel, Length: week, Used: 1, ObservedAt: now}
	if wait, ok := resetIn(now, h.Get(at+"Reset")); ok {
		w.Resets = now.Add(min(max(wait, 0), MaxQuota))
	}
	return w, h.Get(at+"Status") == "rejected" && strings.HasPrefix(h.Get(at+"Representative-Claim"), "seven_day_")
}

// read returns the window of the row, if the header tells how much of it is
// used.
func (r *windowRow) read(now time.Time, h http.Header) (policy.Window, bool) {
	w := policy.Window{Name: r.name, About: r.about, Kind: r.kind, Length: r.length, ObservedAt: now}
	var known bool
	if r.used != "" {
		w.Used, known = number(h, r.used)
		w.Used /= r.whole
		if h.Get(r.status) == "rejected" {
			w.Used, known = 1, true
		}
	} else {
		remaining, told := number(h, r.remaining)
		if !told {
			return w, false
		}
		w.Limit, _ = number(h, r.limit)
		switch known = w.Limit > 0 || remaining == 0; {
		case remaining == 0:
			w.Used = 1
		case known:
			w.Used = 1 - remaining/w.Limit
		}
	}
	if r.minutes != "" {
		w.Name, w.Length, known = named(w.Name, h, r.minutes, known)
	}
	if !known {
		return w, false
	}
	w.Used = min(max(w.Used, 0), 1)
	w.Resets = r.resets(now, h, &w)
	return w, true
}

// named returns the name and the length of a window whose length the header
// tells in minutes. One that has none is no window.
func named(name string, h http.Header, field string, known bool) (string, time.Duration, bool) {
	minutes, told := number(h, field)
	if !told {
		return name, 0, known
	}
	length := time.Duration(min(minutes, MaxQuota.Minutes()) * float64(time.Minute))
	switch length {
	case 0:
		return name, 0, false
	case 5 * time.Hour:
		name = "5h"
	case day:
		name = "daily"
	case week:
		name = "weekly"
	case month:
		name = "monthly"
	}
	return name, length, known
}

// resets returns when the window begins anew, or if it is used up and refills,
// when there is room for one request.
func (r *windowRow) resets(now time.Time, h http.Header, w *policy.Window) time.Time {
	wait, ok := resetIn(now, h.Get(r.reset))
	if !ok && strings.HasSuffix(r.reset, "-At") {
		wait, ok = seconds(h.Get(strings.TrimSuffix(r.reset, "-At") + "-After-Seconds"))
	}
	if !ok {
		return time.Time{}
	}
	if r.refills && w.Used == 1 && w.Kind == policy.ScopeRequests && w.Limit > 1 {
		wait = time.Duration(float64(wait) / w.Limit)
	}
	return now.Add(min(max(wait, 0), MaxQuota))
}

// resetIn reads when a window begins anew: a number of seconds, an instant in
// Unix seconds or milliseconds, a duration such as 6m0s, or one of RFC 3339.
func resetIn(now time.Time, s string) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		switch {
		case !(n >= 0): // also not a number
			return 0, false
		case n >= 1e11:
			return time.UnixMilli(int64(min(n, 1e15))).Sub(now), true
		case n >= 1e8:
			return time.Unix(int64(n), 0).Sub(now), true
		}
		return seconds(s)
	}
	if d, ok := duration(s); ok {
		return d, true
	}
	t, err := time.Parse(time.RFC3339, s)
	return t.Sub(now), err == nil
}

// number reads a number that is not negative. What follows a comma or a
// semicolon is about other windows.
func number(h http.Header, field string) (float64, bool) {
	s := h.Get(field)
	if s == "" { // as almost always, and an error would cost more than all else here
		return 0, false
	}
	if i := strings.IndexAny(s, ",;"); i >= 0 {
		s = s[:i]
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 1) {
		return 0, false
	}
	return n, true
}

// exhausted returns those of windows that are used up.
func exhausted(windows []policy.Window) []policy.Window {
	var used []policy.Window
	for _, w := range windows {
		if w.Used >= 1 {
			used = append(used, w)
		}
	}
	return used
}

// aboutOf returns what windows are about: the widest of them.
func aboutOf(windows []policy.Window) policy.Subject {
	for _, s := range []policy.Subject{policy.SubjectAccount, policy.SubjectKey, policy.SubjectModel} {
		if slices.ContainsFunc(windows, func(w policy.Window) bool { return w.About == s }) {
			return s
		}
	}
	return ""
}

// lastReset returns when the last of windows begins anew, or the zero time if
// none tells.
func lastReset(windows []policy.Window) time.Time {
	var last time.Time
	for _, w := range windows {
		if w.Resets.After(last) {
			last = w.Resets
		}
	}
	return last
}

// googleWindow returns the limit of Google's that a violation is about, by its
// identifier, such as GenerateRequestsPerDayPerProjectPerModel-FreeTier. It
// begins anew after a delay, and that of a day at midnight
// (ai.google.dev/gemini-api/docs/rate-limits).
func googleWindow(now time.Time, q quota, delay time.Duration) policy.Window {
	w := policy.Window{About: policy.SubjectKey, Kind: policy.ScopeRequests, Limit: q.limit, Used: 1, ObservedAt: now}
	unit, per := "requests", ""
	if strings.Contains(q.id, "Token") {
		unit, w.Kind = "tokens", policy.ScopeTokens
	}
	switch {
	case q.perDay():
		per, w.Kind, w.Length, w.Resets = "-day", "", day, midnight(now)
	case strings.Contains(q.id, "PerMinute"):
		per, w.Length = "-minute", minute
		w.Resets = now.Add(min(cmp.Or(delay, minute), MaxRateLimit))
	case delay > 0:
		w.Resets = now.Add(min(delay, MaxRateLimit))
	}
	switch {
	case strings.Contains(q.id, "PerModel"):
		w.About = policy.SubjectModel
	case strings.Contains(q.id, "PerProject"):
		w.About = policy.SubjectAccount
	}
	w.Name = unit + per
	return w
}

// midnight returns the next midnight of Pacific time. Where the time zone is
// not known, it is the later of the two that it may be.
func midnight(now time.Time) time.Time {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		zone = time.FixedZone("PST", -8*60*60)
	}
	y, m, d := now.In(zone).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, zone)
}
