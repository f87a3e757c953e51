package caddymodule

import (
	"context"
	"errors"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// revokedError is the cause of the end of a request whose lease was revoked.
type revokedError struct{ why policy.Reason }

func (e *revokedError) Error() string { return "the lease was revoked: " + string(e.why) }

// revoker returns what an admission policy calls that no longer stands for the
// lease that the request is about to ask for. It ends the request, unless that
// holds another lease by then.
func (r *run) revoker() func(policy.Reason) {
	asked := int64(r.admits)
	r.asked.Store(asked)
	return func(why policy.Reason) {
		if r.asked.Load() == asked {
			r.revoke(&revokedError{why})
		}
	}
}

// revoked returns the refusal of a request whose lease was revoked, else nil.
func revoked(ctx context.Context) *format.Refusal {
	e, ok := errors.AsType[*revokedError](context.Cause(ctx))
	if !ok {
		return nil
	}
	refusal := format.Denied(e.why, 0)
	return &refusal
}
