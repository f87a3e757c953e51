package host

import (
	"context"
	"encoding/json"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// A CommandError tells, in words for the operator, what is wrong with a
// command.
type CommandError struct {
	Message string
}

// Error returns the message.
func (e *CommandError) Error() string { return e.Message }

// Operate carries out a command on an instance that is Operable, and returns
// its answer, a JSON value or nothing. It returns a [*CommandError] if the
// policy refuses the command.
func (c *Client) Operate(ctx context.Context, instance string, cmd policy.Command) (json.RawMessage, error) {
	resp, err := c.rpc.Operate(ctx, &policypb.OperateRequest{
		Instance: instance, Command: wire.Text(cmd.Name), InputJson: cmd.Input,
	})
	switch {
	case err != nil:
		return nil, err
	case resp.GetError() != "":
		return nil, &CommandError{Message: resp.GetError()}
	}
	return resp.GetOutputJson(), nil
}
