package caddymodule

import (
	"context"
	"errors"

	"github.com/usherproxy/usher/internal/format"
	"github.com/usherproxy/usher/policy"
)

// endingError is the cause of the end of a request that is not its own: its
// lease was revoked, or the process ends.
type endingError struct{ refusal format.Refusal }

func (e *endingError) Error() string { return e.refusal.Message }

// revoker returns what an admission policy calls that no longer stands for the
// lease that the request is about to ask for. It ends the request, unless that
// holds another lease by then.
func (r *run) revoker() func(policy.Reason) {
	asked := int64(r.admits)
	r.asked.Store(asked)
	return func(why policy.Reason) {
		if r.asked.Load() == asked {
			r.revoke(&endingError{format.Denied(why, 0)})
		}
	}
}

// revoked returns the refusal of a request whose lease was revoked, or that the
// process has no more time for, else nil.
func revoked(ctx context.Context) *format.Refusal {
	e, ok := errors.AsType[*endingError](context.Cause(ctx))
	if !ok {
		return nil
	}
	refusal := e.refusal
	return &refusal
}
