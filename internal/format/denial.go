package format

import (
	"fmt"
	"net/http"
	"time"

	"github.com/usherproxy/usher/policy"
)

// The types of refusals, in OpenAI's words.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	rateLimit      = "rate_limit_error"
	serverError    = "server_error"
)

// A cause is what a refusal says and does for one reason.
type cause struct {
	status  int
	kind    string
	message string
	final   bool // to try again is of no use, unless an instant is known
}

// denials are the reasons for which policies and queues turn requests away.
var denials = map[policy.Reason]cause{
	policy.ReasonQueueFull:         {429, rateLimit, "too many requests are waiting", false},
	policy.ReasonQueueTimeout:      {429, rateLimit, "the request waited for a free place as long as it may", false},
	policy.ReasonCooldown:          {429, rateLimit, "all keys that can serve this model are cooling down", false},
	policy.ReasonProviderQuota:     {429, rateLimit, "the budget of the provider is used up", false},
	policy.ReasonAccountQuota:      {429, rateLimit, "all keys that can serve this model have used up their quota", false},
	policy.ReasonCircuitOpen:       {503, serverError, "all keys that can serve this model have failed lately and rest", false},
	policy.ReasonAccountInvalid:    {503, serverError, "no key that can serve this model is accepted by its provider", true},
	policy.ReasonStoreUnavailable:  {503, serverError, "the store that keeps the limits cannot be reached", false},
	policy.ReasonPluginUnavailable: {503, serverError, "a policy that decides about this request does not answer", false},
	policy.ReasonNoCandidate:       {503, serverError, "no key can serve this model now", true},
}

// The causes of reasons that are not listed.
var (
	noCapacity = cause{429, rateLimit, "all keys that can serve this model are busy", false}
	turnedAway = cause{503, serverError, "a policy turned the request away", true}
)

// Denied returns the refusal of a request that a policy or the queue turned
// away: a 429 if a wait is all that it needs, a 503 if no candidate can serve
// it or nobody could decide. Its code is the reason. A retryAfter of 0 is
// unknown.
func Denied(reason policy.Reason, retryAfter time.Duration) Refusal {
	c, ok := denials[reason]
	switch {
	case ok:
	case reason.Capacity() || retryAfter > 0:
		c = noCapacity
	default:
		c = turnedAway
	}
	return c.refusal(string(reason), retryAfter)
}

// failures are the ends of attempts after which Usher answers by itself.
var failures = map[policy.Disposition]cause{
	policy.RateLimited:    {429, rateLimit, "all keys that can serve this model are rate limited", false},
	policy.QuotaExhausted: {429, rateLimit, "all keys that can serve this model have used up their quota", false},
	policy.ContextLength:  {400, invalidRequest, "the request is too long for this model", true},
	policy.AuthFailed:     {503, serverError, "no key that can serve this model is accepted by its provider", true},
	policy.Overloaded:     {503, serverError, "the provider has too much to do", false},
	policy.ConnectFailed:  {502, serverError, "the provider cannot be reached", false},
	policy.Timeout:        {504, serverError, "the provider did not answer in time", false},
}

var failed = cause{502, serverError, "the provider failed", false}

// Failed returns the refusal of a request whose last attempt ended with d, for
// where the provider's own answer cannot be passed on. Its code is d. A
// provider that refused our key is never a 401 to the caller, whose key is
// fine.
func Failed(d policy.Disposition, retryAfter time.Duration) Refusal {
	c, ok := failures[d]
	if !ok {
		c = failed
	}
	return c.refusal(string(d), retryAfter)
}

// refusal makes the refusal of a cause. A 429 or 503 that may pass always
// names a time, because some SDKs give up at once without one.
func (c cause) refusal(code string, retryAfter time.Duration) Refusal {
	r := Refusal{Status: c.status, Type: c.kind, Code: code, Message: c.message, RetryAfter: retryAfter}
	switch {
	case retryAfter > 0:
	case c.final:
		r.ShouldRetry = new(bool)
	case c.status == http.StatusTooManyRequests || c.status == http.StatusServiceUnavailable:
		r.RetryAfter = time.Second
	}
	return r
}

// Refusal returns the refusal that tells e.
func (e *BadRequest) Refusal() Refusal {
	return Refusal{
		Status: http.StatusBadRequest, Type: invalidRequest, Code: "bad_request",
		Message: e.Message, Param: e.Param,
	}
}

// UnknownModel refuses a model that the configuration does not have, or not
// for this caller.
func UnknownModel(model string) Refusal {
	return Refusal{
		Status: http.StatusNotFound, Type: invalidRequest, Code: "model_not_found",
		Message: fmt.Sprintf("the model %q does not exist here", model), Param: "model",
	}
}

// UnknownCaller refuses a request without the key of a known caller.
func UnknownCaller() Refusal {
	return Refusal{
		Status: http.StatusUnauthorized, Type: authentication, Code: "unknown_caller",
		Message: "this gateway knows no caller with the key of the request",
	}
}

// UnknownRoute refuses a path that has no operation.
func UnknownRoute() Refusal {
	return Refusal{
		Status: http.StatusNotFound, Type: invalidRequest, Code: "unknown_route",
		Message: "this gateway serves no such path",
	}
}

// NobodyHolds refuses a request about stored things where no provider is said to
// hold any.
func NobodyHolds() Refusal {
	r := UnknownRoute()
	r.Message = "no provider of this gateway is said to hold what this path is about"
	return r
}

// WrongMethod refuses a method that the path has no operation for. The answer
// needs an Allow header, too: see [Allow].
func WrongMethod() Refusal {
	return Refusal{
		Status: http.StatusMethodNotAllowed, Type: invalidRequest, Code: "wrong_method",
		Message: "this path does not have the method of the request",
	}
}

// TooLarge refuses a body of more than limit bytes.
func TooLarge(limit int64) Refusal {
	return Refusal{
		Status: http.StatusRequestEntityTooLarge, Type: invalidRequest, Code: "body_too_large",
		Message: fmt.Sprintf("the request body is larger than the limit of %d bytes", limit),
	}
}

// UnknownEncoding refuses a body whose content encoding cannot be read.
func UnknownEncoding() Refusal {
	return Refusal{
		Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Code: "unknown_encoding",
		Message: "the content encoding of the request body is not supported",
	}
}

// Unreadable refuses a body that ended early or could not be read.
func Unreadable() Refusal {
	return Refusal{
		Status: http.StatusBadRequest, Type: invalidRequest, Code: "bad_request",
		Message: "the request body could not be read",
	}
}

// TimedOut refuses a request whose last attempt took longer than one part of it
// may. The part is the word that names it, such as "idle".
func TimedOut(part string, retryAfter time.Duration) Refusal {
	return cause{http.StatusGatewayTimeout, serverError, "the provider did not answer in time (" + part + ")", false}.
		refusal(part+"_timeout", retryAfter)
}

// NotHeld refuses a body that there is no room for.
func NotHeld() Refusal {
	return Refusal{
		Status: http.StatusServiceUnavailable, Type: serverError, Code: "no_room",
		Message: "this gateway has no room for the request body now", RetryAfter: time.Second,
	}
}

// Stopping refuses a request that the end of the gateway does not wait for.
func Stopping() Refusal {
	return Refusal{
		Status: http.StatusServiceUnavailable, Type: serverError, Code: "stopping",
		Message: "this gateway is being stopped", RetryAfter: time.Second,
	}
}

// DeadlineExceeded refuses a request that has taken as long as one may.
func DeadlineExceeded() Refusal {
	return Refusal{
		Status: http.StatusGatewayTimeout, Type: serverError, Code: "deadline_exceeded",
		Message: "the request took longer than this gateway allows", ShouldRetry: new(bool),
	}
}
