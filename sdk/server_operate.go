package sdk

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// operable returns which policy of p answers operators, or nil.
func (p *Policies) operable() policy.Operable {
	if p.Operable != nil {
		return p.Operable
	}
	for _, candidate := range []any{p.Selection, p.Admission, p.Observer} {
		if o, ok := candidate.(policy.Operable); ok {
			return o
		}
	}
	return nil
}

func (s *server) Operate(ctx context.Context, req *policypb.OperateRequest) (*policypb.OperateResponse, error) {
	in, err := s.instance(req.GetInstance())
	if err != nil {
		return nil, err
	}
	cmd := policy.Command{Name: req.GetCommand(), Input: req.GetInputJson()}
	out, err := operate(ctx, in.policies.Operable, cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return &policypb.OperateResponse{Error: wire.Text(err.Error())}, nil
	}
	return &policypb.OperateResponse{OutputJson: out}, nil
}

func operate(ctx context.Context, o policy.Operable, cmd policy.Command) (out json.RawMessage, err error) {
	defer recoverTo(&err)
	if o == nil {
		return nil, errors.New("the policy takes no commands")
	}
	out, err = o.Operate(ctx, cmd)
	if err == nil && len(out) > 0 && !json.Valid(out) {
		return nil, errors.New("the policy's answer is not JSON")
	}
	return out, err
}
