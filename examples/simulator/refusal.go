package simulator

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"
)

// refusal is an answer that is an error.
type refusal struct {
	status     int
	kind, code string
	message    string
	retryAfter time.Duration
	overLimit  bool
}

// refuse returns the refusal of a status with the words that OpenAI's API has
// for it. A code may replace the usual one.
func refuse(status int, code string, retryAfter time.Duration) *refusal {
	r := &refusal{status: status, code: code, retryAfter: retryAfter}
	usual := ""
	switch status {
	case http.StatusUnauthorized:
		r.kind, usual, r.message = "invalid_request_error", "invalid_api_key", "Incorrect API key provided."
	case http.StatusForbidden:
		r.kind, usual, r.message = "invalid_request_error", "permission_denied", "You are not allowed to do this."
	case http.StatusNotFound:
		r.kind, usual, r.message = "invalid_request_error", "not_found", "There is no such thing here."
	case http.StatusTooManyRequests:
		r.kind, usual, r.message = "rate_limit_error", "rate_limit_exceeded", "Rate limit reached."
	case http.StatusServiceUnavailable:
		r.kind, usual, r.message = "server_error", "overloaded", "The server is overloaded."
	default:
		r.kind, usual, r.message = "server_error", "server_error", "The server had an error."
		if status < 500 {
			r.kind, usual, r.message = "invalid_request_error", "invalid_request", "The request is invalid."
		}
	}
	if code == "insufficient_quota" {
		r.kind, r.message = code, "You exceeded your current quota."
	}
	if retryAfter == 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		r.retryAfter = time.Second
	}
	r.code = cmp.Or(code, usual)
	return r
}

// overLimit says why the key cannot take a request that t has counted in.
func (k *Key) overLimit(t *tally, now time.Time) *refusal {
	if k.Concurrency > 0 && t.InFlight > k.Concurrency {
		r := refuse(http.StatusTooManyRequests, "", time.Duration(k.RetryAfter))
		r.overLimit = true
		return r
	}
	if k.Requests == nil {
		return nil
	}
	t.starts = after(t.starts, now.Add(-time.Duration(k.Requests.Window)))
	if len(t.starts) < k.Requests.Limit {
		return nil
	}
	free := t.starts[len(t.starts)-k.Requests.Limit].Add(time.Duration(k.Requests.Window))
	r := refuse(http.StatusTooManyRequests, "", cmp.Or(time.Duration(k.RetryAfter), free.Sub(now)))
	r.overLimit = true
	return r
}

// after drops the leading times that are not after since.
func after(times []time.Time, since time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(since) {
		times = times[1:]
	}
	return times
}

// write answers with the refusal.
func (r *refusal) write(w http.ResponseWriter) error {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
	return writeJSON(w, r.status, map[string]any{"error": map[string]any{
		"message": r.message, "type": r.kind, "param": nil, "code": r.code,
	}})
}
