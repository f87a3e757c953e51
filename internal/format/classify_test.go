package format_test

import (
	"cmp"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fixture reads a file of testdata.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestClassifyTellsWhatAnErrorMeans(t *testing.T) {
	t.Parallel()
	paths := map[string]string{"anthropic": messagesPath, "gemini": generatePath}
	for _, c := range []struct {
		status int
		error  string
		want   policy.Disposition
	}{
		{401, "openai_invalid_api_key", policy.AuthFailed},
		{401, "openai_no_api_key", policy.AuthFailed},
		{401, "openai_missing_scope", policy.AuthFailed},
		{403, "openai_missing_scope", policy.AuthFailed},
		{401, "azure_subscription_key", policy.AuthFailed},
		{401, "deepseek_authentication", policy.AuthFailed},
		{401, "other_unknown_model", policy.ClientFault},
		{403, "openai_model_not_found", policy.ClientFault},
		{401, "other_unauthorized", policy.UpstreamError},
		{401, "mistral_unauthorized", policy.UpstreamError},
		{403, "openai_unsupported_region", policy.UpstreamError},
		{403, "openrouter_moderation", policy.ClientFault},
		{429, "openai_insufficient_quota", policy.QuotaExhausted},
		{429, "openai_quota_without_code", policy.QuotaExhausted},
		{400, "openai_billing_hard_limit", policy.QuotaExhausted},
		{429, "codex_usage_limit", policy.QuotaExhausted},
		{402, "deepseek_balance", policy.QuotaExhausted},
		{429, "openai_rate_limit", policy.RateLimited},
		{429, "gemini_in_a_list", policy.RateLimited},
		{429, "openai_request_too_large", policy.ContextLength},
		{400, "openai_context_length", policy.ContextLength},
		{400, "vllm_context_length", policy.ContextLength},
		{400, "llamacpp_context_length", policy.ContextLength},
		{404, "openai_model_not_found", policy.ClientFault},
		{503, "openai_overloaded", policy.Overloaded},
		{404, "azure_deployment_not_found", policy.ClientFault},
		{400, "azure_content_filter", policy.ClientFault},
		{429, "azure_rate_limit", policy.RateLimited},
		{403, "azure_network", policy.UpstreamError},
		{413, "groq_request_too_large", policy.ContextLength},
		{429, "groq_rate_limit", policy.RateLimited},
		{498, "groq_flex", policy.Overloaded},
		{400, "groq_restricted", policy.AuthFailed},
		{402, "openrouter_credits", policy.QuotaExhausted},
		{408, "openrouter_timeout", policy.Timeout},
		{502, "openrouter_down", policy.UpstreamError},
		{503, "openrouter_no_provider", policy.Overloaded},
		{500, "openai_server_error", policy.UpstreamError},

		{401, "anthropic_invalid_key", policy.AuthFailed},
		{401, "anthropic_cors", policy.ClientFault},
		{403, "anthropic_permission", policy.ClientFault},
		{403, "anthropic_forbidden", policy.UpstreamError},
		{400, "anthropic_disabled", policy.AuthFailed},
		{400, "anthropic_credit", policy.QuotaExhausted},
		{400, "anthropic_spend_limit", policy.QuotaExhausted},
		{429, "anthropic_tier_limit", policy.QuotaExhausted},
		{402, "anthropic_billing", policy.QuotaExhausted},
		{429, "anthropic_rate_limit", policy.RateLimited},
		{529, "anthropic_overloaded", policy.Overloaded},
		{400, "anthropic_too_long", policy.ContextLength},
		{400, "anthropic_context_limit", policy.ContextLength},
		{413, "anthropic_too_large", policy.ClientFault},
		{404, "anthropic_not_found", policy.ClientFault},
		{400, "anthropic_invalid", policy.ClientFault},
		{500, "anthropic_api_error", policy.UpstreamError},
		{504, "anthropic_timeout", policy.Timeout},
		{401, "other_unauthorized", policy.UpstreamError},

		{400, "gemini_invalid_key", policy.AuthFailed},
		{401, "gemini_unauthenticated", policy.AuthFailed},
		{403, "gemini_leaked_key", policy.AuthFailed},
		{403, "gemini_service_disabled", policy.AuthFailed},
		{403, "gemini_permission", policy.ClientFault},
		{429, "gemini_per_minute", policy.RateLimited},
		{429, "gemini_per_day", policy.QuotaExhausted},
		{429, "gemini_exhausted", policy.RateLimited},
		{429, "gemini_spending_cap", policy.QuotaExhausted},
		{400, "gemini_too_long", policy.ContextLength},
		{400, "gemini_location", policy.UpstreamError},
		{400, "gemini_billing", policy.QuotaExhausted},
		{503, "gemini_overloaded", policy.Overloaded},
		{500, "gemini_internal", policy.UpstreamError},
		{504, "gemini_deadline", policy.Timeout},
		{404, "gemini_not_found", policy.ClientFault},
		{400, "gemini_invalid", policy.ClientFault},
	} {
		vendor, _, _ := strings.Cut(c.error, "_")
		got := operation(t, "POST", cmp.Or(paths[vendor], chatPath)).Classify(now, c.status, nil, fixture(t, "errors/"+c.error+".json"))
		if got.Disposition != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.error, got.Disposition, c.want)
		}
	}
}

func TestClassifyFallsBackOnTheStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]policy.Disposition{
		200: policy.OK, 201: policy.OK, 204: policy.OK,
		0: policy.UpstreamError, 101: policy.UpstreamError, 301: policy.UpstreamError, 307: policy.UpstreamError, 304: policy.UpstreamError,
		400: policy.ClientFault, 404: policy.ClientFault, 405: policy.ClientFault, 409: policy.ClientFault, 413: policy.ClientFault, 422: policy.ClientFault,
		401: policy.UpstreamError, 403: policy.UpstreamError, 402: policy.QuotaExhausted,
		408: policy.Timeout, 429: policy.RateLimited,
		500: policy.UpstreamError, 502: policy.UpstreamError, 503: policy.Overloaded, 504: policy.UpstreamError, 529: policy.Overloaded,
		999: policy.UpstreamError,
	} {
		for _, body := range []string{"", "<html>proxy</html>", "{", `{"error":null}`, `[]`, `"error"`} {
			for _, path := range []string{"/v1/embeddings", messagesPath, generatePath} {
				got := operation(t, "POST", path).Classify(now, status, http.Header{}, []byte(body))
				if got.Disposition != want || !got.Until.IsZero() {
					t.Errorf("%s: %d %q: %+v, want %s", path, status, body, got, want)
				}
			}
		}
	}
}

func TestClassifyReadsWhenToComeBack(t *testing.T) {
	t.Parallel()
	const never = -1
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		header []string
		want   time.Duration
	}{
		"nothing":                          {nil, never},
		"seconds":                          {[]string{"Retry-After", "60"}, time.Minute},
		"a fraction":                       {[]string{"Retry-After", "0.5"}, time.Second / 2},
		"zero":                             {[]string{"Retry-After", "0"}, 0},
		"half an hour":                     {[]string{"Retry-After", "1800"}, 30 * time.Minute},
		"exactly the longest":              {[]string{"Retry-After", "3600"}, time.Hour},
		"more than the longest":            {[]string{"Retry-After", "3601"}, time.Hour},
		"for ever":                         {[]string{"Retry-After", "999999999999"}, time.Hour},
		"a negative number":                {[]string{"Retry-After", "-5"}, never},
		"no number":                        {[]string{"Retry-After", "soon"}, never},
		"NaN":                              {[]string{"Retry-After", "NaN"}, never},
		"infinity":                         {[]string{"Retry-After", "Inf"}, time.Hour},
		"a date":                           {[]string{"Retry-After", date(30 * time.Second)}, 30 * time.Second},
		"a date that has passed":           {[]string{"Retry-After", date(-time.Hour)}, 0},
		"a distant date":                   {[]string{"Retry-After", date(1000 * time.Hour)}, time.Hour},
		"milliseconds":                     {[]string{"Retry-After-Ms", "250"}, 250 * time.Millisecond},
		"milliseconds are better":          {[]string{"Retry-After-Ms", "250", "Retry-After", "1"}, 250 * time.Millisecond},
		"empty milliseconds":               {[]string{"Retry-After-Ms", "", "Retry-After", "7"}, 7 * time.Second},
		"milliseconds that are no number":  {[]string{"Retry-After-Ms", "x", "Retry-After", "7"}, 7 * time.Second},
		"two values":                       {[]string{"Retry-After", "x", "Retry-After", "7"}, 7 * time.Second},
		"requests":                         {[]string{"X-Ratelimit-Reset-Requests", "6m0s"}, 6 * time.Minute},
		"tokens":                           {[]string{"X-Ratelimit-Reset-Tokens", "20ms"}, 20 * time.Millisecond},
		"a number of seconds":              {[]string{"X-Ratelimit-Reset-Tokens", "7.5"}, 7500 * time.Millisecond},
		"the longer of both":               {[]string{"X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", "2s"}, 2 * time.Second},
		"what is used up":                  {[]string{"X-Ratelimit-Reset-Requests", "9s", "X-Ratelimit-Reset-Tokens", "2s", "X-Ratelimit-Remaining-Tokens", "0"}, 2 * time.Second},
		"what is used up first":            {[]string{"X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", "2s", "X-Ratelimit-Remaining-Requests", "0"}, time.Second},
		"both used up":                     {[]string{"X-Ratelimit-Reset-Requests", "9s", "X-Ratelimit-Reset-Tokens", "2s", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Remaining-Tokens", "0"}, 9 * time.Second},
		"a reset that cannot be read":      {[]string{"X-Ratelimit-Reset-Requests", "-1s", "X-Ratelimit-Reset-Tokens", "tomorrow"}, never},
		"Retry-After before the resets":    {[]string{"Retry-After", "3", "X-Ratelimit-Reset-Requests", "6m0s"}, 3 * time.Second},
		"the resets if it cannot be read":  {[]string{"Retry-After", "-3", "X-Ratelimit-Reset-Requests", "6s"}, 6 * time.Second},
		"a duration is no Retry-After":     {[]string{"Retry-After", "6m0s"}, never},
		"another provider's reset ignored": {[]string{"X-Ratelimit-Reset", "1700000000"}, never},
	} {
		h := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			h.Add(c.header[i], c.header[i+1])
		}
		got := operation(t, "POST", "/v1/chat/completions").Classify(now, 429, h, fixture(t, "errors/openai_rate_limit.json"))
		want := time.Time{}
		if c.want != never {
			want = now.Add(c.want)
		}
		if got.Disposition != policy.RateLimited || !got.Until.Equal(want) {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
}

func TestEveryFormatTellsWhenToComeBackInItsWay(t *testing.T) {
	t.Parallel()
	instant := now.Add(42 * time.Second).Format(time.RFC3339)
	for name, c := range map[string]struct {
		path, error string
		header      http.Header
		want        time.Time
	}{
		"an instant of Anthropic": {
			messagesPath, "anthropic_rate_limit",
			http.Header{"Anthropic-Ratelimit-Requests-Reset": {instant}, "Anthropic-Ratelimit-Requests-Remaining": {"0"}},
			now.Add(42 * time.Second),
		},
		"the one that is used up": {
			messagesPath, "anthropic_rate_limit",
			http.Header{
				"Anthropic-Ratelimit-Requests-Reset":         {now.Add(time.Minute).Format(time.RFC3339)},
				"Anthropic-Ratelimit-Input-Tokens-Reset":     {instant},
				"Anthropic-Ratelimit-Input-Tokens-Remaining": {"0"},
			},
			now.Add(42 * time.Second),
		},
		"Retry-After of Anthropic": {
			messagesPath, "anthropic_rate_limit",
			http.Header{"Anthropic-Ratelimit-Requests-Reset": {instant}, "Retry-After": {"7"}},
			now.Add(7 * time.Second),
		},
		"an instant that has passed":   {messagesPath, "anthropic_rate_limit", http.Header{"Anthropic-Ratelimit-Tokens-Reset": {"2026-12-01T11:00:00Z"}}, now},
		"an instant in words":          {messagesPath, "anthropic_tier_limit", nil, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
		"the same of an owner's limit": {messagesPath, "anthropic_spend_limit", nil, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
		"milliseconds of Azure":        {chatPath, "azure_rate_limit", http.Header{"Retry-After-Ms": {"8500"}, "Retry-After": {"9"}}, now.Add(8500 * time.Millisecond)},
		"OpenAI's limits":              {messagesPath, "anthropic_rate_limit", http.Header{"X-Ratelimit-Reset-Requests": {"6s"}}, time.Time{}},
		"a delay of Google":            {generatePath, "gemini_per_minute", nil, now.Add(26 * time.Second)},
		"a delay beside a day's limit": {generatePath, "gemini_per_day", nil, time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)},
		"nothing of Google":            {generatePath, "gemini_exhausted", nil, time.Time{}},
	} {
		got := operation(t, "POST", c.path).Classify(now, 429, c.header, fixture(t, "errors/"+c.error+".json"))
		if !got.Until.Equal(c.want) {
			t.Errorf("%s: until %s, want %s", name, got.Until, c.want)
		}
	}
}

func TestAnErrorInAStreamTellsWhenToComeBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34.5s"}]}}`:  now.Add(34500 * time.Millisecond),
		`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"9999h"}]}}`:  now.Add(format.MaxRateLimit),
		`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`:                                     {},
		`{"error":{"code":503,"status":"UNAVAILABLE","details":[{"retryDelay":"34s"},{"x":[1]}]}}`: {},
	} {
		m := format.NewMeter(operation(t, "POST", streamPath), header(".sse"), true)
		_, _ = m.Write([]byte("data: " + text + "\n\n"))
		if f := m.Err(); f == nil || !f.Until(now).Equal(want) {
			t.Errorf("%s: %+v, want %s", text, f, want)
		}
	}
}

func TestQuotasMayLastForDays(t *testing.T) {
	t.Parallel()
	op := operation(t, "POST", "/v1/responses")
	week := http.Header{"Retry-After": {"604800"}}
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   time.Time
	}{
		"a week":                {week, `{"error":{"code":"insufficient_quota"}}`, now.Add(7 * 24 * time.Hour)},
		"an instant":            {nil, `{"error":{"type":"usage_limit_reached","resets_at":1796212800,"resets_in_seconds":5}}`, now.Add(24 * time.Hour)},
		"a distant instant":     {nil, `{"error":{"type":"usage_limit_reached","resets_at":1e300}}`, now.Add(format.MaxQuota)},
		"seconds":               {nil, `{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}`, now.Add(time.Hour)},
		"the header is better":  {week, `{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}`, now.Add(7 * 24 * time.Hour)},
		"a limit is cut sooner": {week, `{"error":{"code":"rate_limit_exceeded"}}`, now.Add(format.MaxRateLimit)},
		"nothing":               {nil, `{"error":{"code":"insufficient_quota"}}`, time.Time{}},
	} {
		if got := op.Classify(now, 429, c.header, []byte(c.body)); !got.Until.Equal(c.want) {
			t.Errorf("%s: until %s, want %s", name, got.Until, c.want)
		}
	}
}

func TestOnlyLimitsHaveAnUntil(t *testing.T) {
	t.Parallel()
	h := http.Header{"Retry-After": {"5"}}
	for _, status := range []int{200, 307, 400, 401, 500, 503} {
		if got := operation(t, "POST", "/v1/chat/completions").Classify(now, status, h, nil); !got.Until.IsZero() {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

// FuzzClassify holds that any answer has a meaning, and that no wait is longer
// than the longest or lies in the past.
func FuzzClassify(f *testing.F) {
	f.Add(429, "7", "", "6m0s", []byte(`{"error":{"code":"rate_limit_exceeded"}}`))
	f.Add(429, "", "", "", []byte(`{"error":{"details":[{"violations":[{"quotaId":"PerDay"}]},{"retryDelay":"1e9s"}]}}  `))
	f.Add(401, "", "x", "", []byte(`[{"error":{"message":"model"}}]`))
	f.Add(429, "Tue, 01 Dec 2026 12:00:30 GMT", "1e400", "-1h", []byte(`{"error":{"type":"usage_limit_reached","resets_at":-1e308}}`))
	f.Fuzz(func(t *testing.T, status int, after, ms, reset string, body []byte) {
		h := http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}, "X-Ratelimit-Reset-Tokens": {reset}}
		path := []string{chatPath, messagesPath, generatePath}[len(body)%3]
		got := operation(t, "POST", path).Classify(now, status, h, body)
		if !got.Disposition.Valid() {
			t.Fatalf("%+v", got)
		}
		if !got.Until.IsZero() && (got.Until.Before(now) || got.Until.After(now.Add(format.MaxQuota))) {
			t.Fatalf("%+v", got)
		}
	})
}
