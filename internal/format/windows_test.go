package format_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// told returns a header of pairs of field and value.
func told(fields ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

// A table of what providers are known to send. Where the documentation shows
// an answer, it is that one.
func TestAnswersTellOfTheProvidersLimits(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	const (
		rpm, tpm = policy.ScopeRequests, policy.ScopeTokens
		account  = policy.SubjectAccount
		key      = policy.SubjectKey
		model    = policy.SubjectModel
	)
	for name, c := range map[string]struct {
		header http.Header
		want   []policy.Window
	}{
		"nothing": {told("Content-Type", "application/json"), nil},
		// platform.openai.com/docs/guides/rate-limits
		"OpenAI": {
			told(
				"x-ratelimit-limit-requests", "60", "x-ratelimit-limit-tokens", "150000",
				"x-ratelimit-remaining-requests", "59", "x-ratelimit-remaining-tokens", "149984",
				"x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6m0s",
			),
			[]policy.Window{
				{Name: "requests", About: model, Kind: rpm, Limit: 60, Used: 1 - 59.0/60, Resets: in(time.Second)},
				{Name: "tokens", About: model, Kind: tpm, Limit: 150000, Used: 1 - 149984.0/150000, Resets: in(6 * time.Minute)},
			},
		},
		"a limit that refills has room long before it is whole": {
			told("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "1m0s"),
			[]policy.Window{{Name: "requests", About: model, Kind: rpm, Limit: 500, Used: 1, Resets: in(120 * time.Millisecond)}},
		},
		// learn.microsoft.com/azure/ai-services/openai: no limit beside what remains
		"Azure": {
			told("x-ratelimit-remaining-requests", "7", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "20"),
			[]policy.Window{{Name: "tokens", About: model, Kind: tpm, Used: 1, Resets: in(20 * time.Second)}},
		},
		// console.groq.com/docs/rate-limits
		"Groq": {
			told(
				"retry-after", "2", "x-ratelimit-limit-requests", "14400", "x-ratelimit-limit-tokens", "18000",
				"x-ratelimit-remaining-requests", "14370", "x-ratelimit-remaining-tokens", "17997",
				"x-ratelimit-reset-requests", "2m59.56s", "x-ratelimit-reset-tokens", "7.66s",
			),
			[]policy.Window{
				{Name: "requests", About: model, Kind: rpm, Limit: 14400, Used: 1 - 14370.0/14400, Resets: in(179560 * time.Millisecond)},
				{Name: "tokens", About: model, Kind: tpm, Limit: 18000, Used: 1 - 17997.0/18000, Resets: in(7660 * time.Millisecond)},
			},
		},
		// inference-docs.cerebras.ai/support/rate-limits
		"Cerebras": {
			told(
				"x-ratelimit-limit-requests-day", "1000000000", "x-ratelimit-limit-tokens-minute", "1000000000",
				"x-ratelimit-remaining-requests-day", "999997455", "x-ratelimit-remaining-tokens-minute", "0",
				"x-ratelimit-reset-requests-day", "33011.382867", "x-ratelimit-reset-tokens-minute", "11.382867",
			),
			[]policy.Window{
				{Name: "requests-day", About: model, Kind: rpm, Length: 24 * time.Hour, Limit: 1e9, Used: 1 - 999997455.0/1e9, Resets: in(33011382867 * time.Microsecond)},
				{Name: "tokens-minute", About: model, Kind: tpm, Length: time.Minute, Limit: 1e9, Used: 1, Resets: in(11382867 * time.Microsecond)},
			},
		},
		// openrouter.ai/docs/api-reference/limits: an instant in milliseconds
		"OpenRouter": {
			told("X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796169600000"),
			[]policy.Window{{Name: "key-requests", About: key, Kind: rpm, Limit: 50, Used: 1, Resets: in(12 * time.Hour)}},
		},
		// draft-ietf-httpapi-ratelimit-headers-03, section 5
		"the IETF's draft": {
			told("RateLimit-Limit", "100, 100;w=60;burst=10", "RateLimit-Remaining", "25", "RateLimit-Reset", "50"),
			[]policy.Window{{Name: "key-requests", About: key, Kind: rpm, Limit: 100, Used: 0.75, Resets: in(50 * time.Second)}},
		},
		// platform.claude.com/docs/en/api/rate-limits
		"Anthropic": {
			told(
				"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
				"anthropic-ratelimit-requests-reset", now.Add(time.Second).Format(time.RFC3339),
				"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "0",
				"anthropic-ratelimit-input-tokens-reset", now.Add(30*time.Second).Format(time.RFC3339),
			),
			[]policy.Window{
				{Name: "requests", About: model, Kind: rpm, Length: time.Minute, Limit: 50, Used: 1 - 49.0/50, Resets: in(time.Second)},
				{Name: "input-tokens", About: model, Kind: tpm, Length: time.Minute, Limit: 40000, Used: 1, Resets: in(30 * time.Second)},
			},
		},
		"a plan of Anthropic's": {
			told(
				"anthropic-ratelimit-unified-status", "allowed", "anthropic-ratelimit-unified-representative-claim", "five_hour",
				"anthropic-ratelimit-unified-5h-status", "allowed", "anthropic-ratelimit-unified-5h-utilization", "0.42",
				"anthropic-ratelimit-unified-5h-reset", "1796133600",
				"anthropic-ratelimit-unified-7d-status", "rejected", "anthropic-ratelimit-unified-7d-utilization", "0.99",
				"anthropic-ratelimit-unified-7d-reset", "1796731200",
				"anthropic-ratelimit-unified-7d_opus-utilization", "1",
			),
			[]policy.Window{
				{Name: "5h", About: account, Length: 5 * time.Hour, Used: 0.42, Resets: in(2 * time.Hour)},
				{Name: "weekly", About: account, Length: 7 * 24 * time.Hour, Used: 1, Resets: in(7 * 24 * time.Hour)},
			},
		},
		"one model in a plan of Anthropic's": {
			told(
				"anthropic-ratelimit-unified-status", "rejected", "anthropic-ratelimit-unified-representative-claim", "seven_day_opus",
				"anthropic-ratelimit-unified-reset", "1796731200",
			),
			[]policy.Window{{Name: "weekly-model", About: model, Length: 7 * 24 * time.Hour, Used: 1, Resets: in(7 * 24 * time.Hour)}},
		},
		// github.com/openai/codex: 100 per cent, a window without a length
		"a plan of Codex": {
			told(
				"x-codex-primary-used-percent", "100", "x-codex-primary-window-minutes", "300", "x-codex-primary-reset-after-seconds", "90",
				"x-codex-secondary-used-percent", "84.5", "x-codex-secondary-window-minutes", "10080", "x-codex-secondary-reset-at", "1796731200",
			),
			[]policy.Window{
				{Name: "5h", About: account, Length: 5 * time.Hour, Used: 1, Resets: in(90 * time.Second)},
				{Name: "weekly", About: account, Length: 7 * 24 * time.Hour, Used: 0.845, Resets: in(7 * 24 * time.Hour)},
			},
		},
		"a plan of Codex with one window": {
			told(
				"x-codex-primary-used-percent", "1", "x-codex-primary-window-minutes", "43200",
				"x-codex-secondary-used-percent", "0", "x-codex-secondary-window-minutes", "0",
			),
			[]policy.Window{{Name: "monthly", About: account, Length: 30 * 24 * time.Hour, Used: 0.01}},
		},
		"more left than there may be": {
			told("x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "11"),
			[]policy.Window{{Name: "requests", About: model, Kind: rpm, Limit: 10}},
		},
		"numbers that are none": {
			told(
				"x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "-1", "x-ratelimit-remaining-tokens", "NaN",
				"ratelimit-remaining", "Inf", "x-codex-primary-used-percent", "a lot",
			), nil,
		},
		"a reset that cannot be read, and one of long ago": {
			told(
				"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "soon",
				"ratelimit-remaining", "0", "ratelimit-reset", "1000000000",
			),
			[]policy.Window{
				{Name: "requests", About: model, Kind: rpm, Used: 1},
				{Name: "key-requests", About: key, Kind: rpm, Used: 1, Resets: now},
			},
		},
	} {
		for i := range c.want {
			c.want[i].ObservedAt = now
		}
		for _, path := range []string{chatPath, messagesPath, generatePath} {
			got := operation(t, "POST", path).Classify(now, 200, c.header, nil)
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
			if diff := cmp.Diff(c.want, got.Windows, near); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if got.Disposition != policy.OK || got.About != "" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// A limit that is refilled is whole again long after there is room for one
// request: what the refusal says of that holds, if it says anything.
func TestRefusalKnowsBestWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	limits := []string{
		"x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "6m0s",
		"x-ratelimit-remaining-requests-day", "0", "x-ratelimit-reset-requests-day", "7200",
	}
	for name, c := range map[string]struct {
		status       int
		more         []string
		tokens, days time.Duration
	}{
		"it says":       {429, []string{"retry-after", "1"}, time.Second, 2 * time.Hour},
		"it says later": {429, []string{"retry-after", "600"}, 6 * time.Minute, 2 * time.Hour},
		"it is silent":  {429, nil, 6 * time.Minute, 2 * time.Hour},
		"no refusal":    {200, []string{"retry-after", "1"}, 6 * time.Minute, 2 * time.Hour},
	} {
		got := operation(t, "POST", chatPath).Classify(now, c.status, told(append(c.more, limits...)...), nil).Windows
		if len(got) != 2 || got[0].Resets.Sub(now) != c.tokens || got[1].Resets.Sub(now) != c.days {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRefusalsTellWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	resetAt := told("anthropic-ratelimit-unified-7d-status", "rejected", "anthropic-ratelimit-unified-7d-reset", "1796731200")
	for name, c := range map[string]struct {
		status      int
		path, error string
		header      http.Header
		want        policy.Disposition
		about       policy.Subject
		until       time.Duration // 0 is none
	}{
		"a model's limit":         {429, chatPath, "openai_rate_limit", nil, policy.RateLimited, policy.SubjectModel, 0},
		"credit":                  {429, chatPath, "openai_insufficient_quota", nil, policy.QuotaExhausted, policy.SubjectAccount, 0},
		"balance":                 {402, chatPath, "deepseek_balance", nil, policy.QuotaExhausted, policy.SubjectAccount, 0},
		"a plan's window":         {429, chatPath, "codex_usage_limit", nil, policy.QuotaExhausted, policy.SubjectAccount, -1},
		"a key":                   {401, chatPath, "openai_invalid_api_key", nil, policy.AuthFailed, policy.SubjectKey, 0},
		"a scope of a key":        {403, chatPath, "openai_missing_scope", nil, policy.AuthFailed, policy.SubjectKey, 0},
		"Anthropic does not say":  {429, messagesPath, "anthropic_rate_limit", nil, policy.RateLimited, "", 0},
		"its header does":         {429, messagesPath, "anthropic_rate_limit", told("anthropic-ratelimit-output-tokens-remaining", "0", "anthropic-ratelimit-output-tokens-reset", now.Add(time.Second).Format(time.RFC3339)), policy.RateLimited, policy.SubjectModel, time.Second},
		"a plan that is used up":  {429, messagesPath, "anthropic_rate_limit", resetAt, policy.QuotaExhausted, policy.SubjectAccount, 7 * 24 * time.Hour},
		"an organization":         {400, messagesPath, "anthropic_disabled", nil, policy.AuthFailed, policy.SubjectAccount, 0},
		"its credit":              {400, messagesPath, "anthropic_credit", nil, policy.QuotaExhausted, policy.SubjectAccount, 0},
		"a minute of a model":     {429, generatePath, "gemini_per_minute", nil, policy.RateLimited, policy.SubjectModel, 26 * time.Second},
		"a day of a model":        {429, generatePath, "gemini_per_day", nil, policy.QuotaExhausted, policy.SubjectModel, 20 * time.Hour},
		"a cap":                   {429, generatePath, "gemini_spending_cap", nil, policy.QuotaExhausted, policy.SubjectAccount, 0},
		"a service":               {403, generatePath, "gemini_service_disabled", nil, policy.AuthFailed, policy.SubjectAccount, 0},
		"nothing known":           {429, generatePath, "gemini_exhausted", nil, policy.RateLimited, "", 0},
		"a key of one's own":      {429, chatPath, "other_unauthorized", told("ratelimit-remaining", "0", "ratelimit-reset", "9"), policy.RateLimited, policy.SubjectKey, 9 * time.Second},
		"of files, not prompts":   {429, "/v1/files", "other_unauthorized", told("ratelimit-remaining", "0", "ratelimit-reset", "9"), policy.RateLimited, policy.SubjectModel, 9 * time.Second},
		"the account's, of files": {429, "/v1/files", "openai_insufficient_quota", nil, policy.QuotaExhausted, policy.SubjectAccount, 0},
		"what is not used up":     {429, chatPath, "other_unauthorized", told("ratelimit-remaining", "1", "ratelimit-limit", "2", "ratelimit-reset", "9"), policy.RateLimited, "", 0},
		"a fault of the caller's": {400, chatPath, "other_unauthorized", told("ratelimit-remaining", "0"), policy.ClientFault, "", 0},
	} {
		got := operation(t, "POST", c.path).Classify(now, c.status, c.header, fixture(t, "errors/"+c.error+".json"))
		if got.Disposition != c.want || got.About != c.about {
			t.Errorf("%s: %s about %q, want %s about %q", name, got.Disposition, got.About, c.want, c.about)
		}
		if until := got.Until.Sub(now); c.until > 0 && until != c.until || c.until == 0 && !got.Until.IsZero() || c.until < 0 && got.Until.IsZero() {
			t.Errorf("%s: until %s, want in %s", name, got.Until, c.until)
		}
	}
}

// cloud.google.com/apis/design/errors: QuotaFailure and RetryInfo
func TestGoogleNamesTheLimits(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]policy.Window{
		"gemini_per_minute": {{
			Name: "tokens-minute", About: policy.SubjectModel, Kind: policy.ScopeTokens, Length: time.Minute, Limit: 250000, Used: 1,
			Resets: now.Add(26 * time.Second), ObservedAt: now,
		}},
		"gemini_per_day": {
			{Name: "requests-day", About: policy.SubjectModel, Length: 24 * time.Hour, Used: 1, Resets: now.Add(20 * time.Hour), ObservedAt: now},
			{
				Name: "requests-minute", About: policy.SubjectModel, Kind: policy.ScopeRequests, Length: time.Minute, Used: 1,
				Resets: now.Add(time.Minute), ObservedAt: now,
			},
		},
		"gemini_exhausted": nil,
	} {
		got := operation(t, "POST", generatePath).Classify(now, 429, nil, fixture(t, "errors/"+name+".json"))
		if diff := cmp.Diff(want, got.Windows); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// FuzzWindows holds that windows are sound whatever an answer says.
func FuzzWindows(f *testing.F) {
	f.Add("60", "59", "1s", "0.5", "300", "")
	f.Add("0", "0", "1796731200000", "1e400", "-1", "PerDay")
	f.Add("NaN", "100, 100;w=60", "2026-12-01T11:00:00Z", "rejected", "1e300", "PerMinutePerProjectToken")
	f.Fuzz(func(t *testing.T, limit, remaining, reset, used, minutes, quota string) {
		h := http.Header{}
		for _, at := range []string{"X-Ratelimit-%s-Requests", "Ratelimit-%s", "Anthropic-Ratelimit-Tokens-%s"} {
			for field, value := range map[string]string{"Limit": limit, "Remaining": remaining, "Reset": reset} {
				h.Set(strings.ReplaceAll(at, "%s", field), value)
			}
		}
		for field, value := range map[string]string{
			"Anthropic-Ratelimit-Unified-5h-Utilization": used, "Anthropic-Ratelimit-Unified-5h-Status": used, "Anthropic-Ratelimit-Unified-5h-Reset": reset,
			"X-Codex-Primary-Used-Percent": used, "X-Codex-Primary-Window-Minutes": minutes, "X-Codex-Primary-Reset-At": reset,
		} {
			h.Set(field, value)
		}
		body, err := json.Marshal(map[string]any{"error": map[string]any{"details": []any{
			map[string]any{"violations": []any{map[string]any{"quotaId": quota, "quotaValue": limit}}}, map[string]any{"retryDelay": reset},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		got := operation(t, "POST", generatePath).Classify(now, 429, h, body)
		if got.About != "" && got.Disposition != policy.RateLimited && got.Disposition != policy.QuotaExhausted {
			t.Errorf("%s is about %s", got.Disposition, got.About)
		}
		for _, w := range got.Windows {
			switch {
			case w.Name == "", w.About == "", w.ObservedAt != now, w.Length < 0,
				!(w.Used >= 0 && w.Used <= 1), !(w.Limit >= 0) || math.IsInf(w.Limit, 0),
				!w.Resets.IsZero() && (w.Resets.Before(now) || w.Resets.After(now.Add(format.MaxQuota))):
				t.Errorf("%+v", w)
			}
		}
	})
}
