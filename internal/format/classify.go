package format

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/policy"
)

// A Result is what an answer tells of the attempt.
type Result struct {
	Disposition policy.Disposition

	// Until is when the provider may be asked again, for RateLimited and
	// QuotaExhausted if it said so, and else the zero time.
	Until time.Time

	// About is what the refusal is about, for RateLimited, QuotaExhausted and
	// AuthFailed if the answer told, and else empty.
	About policy.Subject

	// Windows are the provider's own limits, as the answer told of them. Of an
	// error they are also those that it names.
	Windows []policy.Window
}

// Classify tells what an answer of the given status, header and body means.
// The body, or its beginning, matters only for a status of 400 or more; it may
// be nil. It is believed as it stands: nothing but codes, types and a few
// phrases of it is looked at.
func (op *Operation) Classify(now time.Time, status int, header http.Header, body []byte) Result {
	r := op.classify(now, status, header, body)
	if op != nil && op.unnamed() {
		r.keepApart()
	}
	return r
}

// keepApart says that rates which are limited are those of requests that name
// no model. Providers limit these apart from prompts (OpenAI its files,
// Anthropic its batches), and answer them with limits of the same names.
func (r *Result) keepApart() {
	if r.Disposition == policy.RateLimited {
		r.About = policy.SubjectModel
	}
	for i := range r.Windows {
		if r.Windows[i].Kind != "" {
			r.Windows[i].About = policy.SubjectModel
		}
	}
}

func (op *Operation) classify(now time.Time, status int, header http.Header, body []byte) Result {
	switch {
	case status >= 200 && status < 300:
		return Result{Disposition: policy.OK, Windows: windows(now, time.Time{}, header)}
	case status < 400: // a provider has no business to redirect
		return Result{Disposition: policy.UpstreamError, Windows: windows(now, time.Time{}, header)}
	}
	e := readError(status, body)
	wait, told := toldWait(now, header, e.reset)
	r := Result{Windows: append(windows(now, until(now, wait, told, MaxRateLimit), header), e.windows(now)...)}
	r.Disposition, r.About = op.shape().classify(e)
	r.explain()
	if longest, ok := longest[r.Disposition]; ok {
		r.Until = op.shape().resetAt(now, header, e.reset, longest)
		if last := lastReset(exhausted(r.Windows)); r.Until.IsZero() && !last.IsZero() {
			r.Until = until(now, last.Sub(now), true, longest)
		}
	}
	return r
}

// explain explains a refusal by the windows that are used up.
func (r *Result) explain() {
	used := exhausted(r.Windows)
	limited := r.Disposition == policy.RateLimited || r.Disposition == policy.QuotaExhausted && r.About == ""
	if !limited || len(used) == 0 {
		return
	}
	plan := slices.DeleteFunc(slices.Clone(used), func(w policy.Window) bool { return w.Kind != "" })
	if len(plan) > 0 { // no wait for the next minute helps
		r.Disposition, used = policy.QuotaExhausted, plan
	}
	r.About = aboutOf(used)
}

// A faultRule says what errors of a kind mean. All that it names must match.
type faultRule struct {
	status  []int    // any of these; none named means any
	words   []string // the error's code or type, or a reason of its details, is one of these
	phrases []string // the error's message has one of these, in lower case
	perDay  bool     // a limit of a day is used up
	bare    bool     // there is no error object
	is      policy.Disposition
	about   policy.Subject // or empty, if the error does not tell
}

// inStream is the status of an error inside a stream, which has none.
const inStream = 0

// A providerError is an error as a provider told it.
type providerError struct {
	status     int
	code, kind string   // kind is error.type or error.status
	message    string   // in lower case
	reasons    []string // of its details
	quotas     []quota  // the limits that are used up
	reset      reset
}

// A quota is one of Google's limits, by its identifier, and how much it allows
// if that is known.
type quota struct {
	id    string
	limit float64
}

// windows returns the limits that the error names.
func (e *providerError) windows(now time.Time) []policy.Window {
	var found []policy.Window
	for _, q := range e.quotas {
		delay := time.Duration(min(max(e.reset.in, 0), forever) * float64(time.Second))
		found = append(found, googleWindow(now, q, delay))
	}
	return found
}

// is reports whether the error is one of the words.
func (e *providerError) is(words []string) bool {
	return slices.Contains(words, e.code) || slices.Contains(words, e.kind) ||
		slices.ContainsFunc(e.reasons, func(reason string) bool { return slices.Contains(words, reason) })
}

// matches reports whether the rule is about e.
func (r *faultRule) matches(e providerError) bool {
	if len(r.status) > 0 && !slices.Contains(r.status, e.status) {
		return false
	}
	if len(r.words) > 0 && !e.is(r.words) {
		return false
	}
	if r.perDay && !slices.ContainsFunc(e.quotas, quota.perDay) {
		return false
	}
	mentions := func(phrase string) bool { return strings.Contains(e.message, phrase) }
	if len(r.phrases) > 0 && !slices.ContainsFunc(r.phrases, mentions) {
		return false
	}
	return !r.bare || e.code+e.kind+e.message == ""
}

// classify applies the rules of the format, and those of HTTP where they are
// silent.
func (d *dialect) classify(e providerError) (policy.Disposition, policy.Subject) {
	for i := range d.faults {
		if d.faults[i].matches(e) {
			return d.faults[i].is, d.faults[i].about
		}
	}
	switch {
	case e.status == http.StatusTooManyRequests:
		return policy.RateLimited, ""
	case e.status == http.StatusRequestTimeout:
		return policy.Timeout, ""
	case e.status == http.StatusServiceUnavailable, e.status == statusOverloaded:
		return policy.Overloaded, ""
	case e.status >= 400 && e.status < 500:
		return policy.ClientFault, ""
	}
	return policy.UpstreamError, ""
}

// statusOverloaded is what Anthropic, and others after it, say when they have
// too much to do.
const statusOverloaded = 529

// readError reads the error of a body. Most formats have an object "error";
// vLLM and Mistral have its members at the top, some have a word for an
// error, and Gemini has a list with one object.
func readError(status int, body []byte) providerError {
	text := gjson.ParseBytes(body[:min(len(body), maxErrorBody)])
	if text.IsArray() {
		text = text.Get("0")
	}
	if !text.IsObject() {
		return providerError{status: status}
	}
	if e := text.Get("error"); !empty(e) {
		return errorIn(status, e)
	}
	return errorIn(status, text)
}

// maxErrorBody bounds how much of a body is looked at.
const maxErrorBody = 64 << 10

// errorIn reads an error, which is an object or a word.
func errorIn(status int, e gjson.Result) providerError {
	if e.Type == gjson.String {
		return providerError{status: status, message: strings.ToLower(e.Str)}
	}
	code := e.Get("code")
	if status == inStream {
		status = statusIn(code)
	}
	pe := providerError{
		status:  status,
		code:    code.String(),
		kind:    e.Get("type").String(),
		message: strings.ToLower(e.Get("message").String()),
		reset:   reset{at: e.Get("resets_at").Num, in: e.Get("resets_in_seconds").Num},
	}
	if pe.kind == "" {
		pe.kind = e.Get("status").String()
	}
	if code := e.Get("details.error_code"); code.Type == gjson.String { // Anthropic
		pe.reasons = append(pe.reasons, code.Str)
	}
	if pe.reset == (reset{}) {
		pe.reset.at = regained(pe.message)
	}
	e.Get("details").ForEach(func(_, detail gjson.Result) bool {
		pe.add(detail)
		return true
	})
	if slices.ContainsFunc(pe.quotas, quota.perDay) {
		pe.reset.in = 0 // which is about the limit of a minute
	}
	return pe
}

// perDay reports whether a limit of Google's is one of a day.
func (q quota) perDay() bool { return strings.Contains(q.id, "PerDay") }

// maxQuotas bounds how many limits of an error are looked at.
const maxQuotas = 16

// add adds one of the details that Google's errors have: ErrorInfo,
// QuotaFailure or RetryInfo of the package google.rpc.
func (e *providerError) add(detail gjson.Result) {
	if reason := detail.Get("reason"); reason.Type == gjson.String {
		e.reasons = append(e.reasons, reason.Str)
	}
	detail.Get("violations").ForEach(func(_, violation gjson.Result) bool {
		limit := violation.Get("quotaValue").Float() // a number in a string
		if math.IsNaN(limit) || math.IsInf(limit, 0) || limit < 0 {
			limit = 0
		}
		e.quotas = append(e.quotas, quota{violation.Get("quotaId").String(), limit})
		return len(e.quotas) < maxQuotas
	})
	if d, ok := duration(detail.Get("retryDelay").Str); ok {
		e.reset.in = d.Seconds()
	}
}

// statusIn returns the status that some providers write as the code of an
// error inside a stream.
func statusIn(code gjson.Result) int {
	if code.Type == gjson.Number && code.Num >= 400 && code.Num < 600 {
		return int(code.Num)
	}
	return inStream
}
