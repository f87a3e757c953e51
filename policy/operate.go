package policy

import (
	"context"
	"encoding/json"
)

// An Operable policy answers its operators: people and programs who look at
// what it knows, or correct it. Any policy may implement it.
type Operable interface {
	// Operate carries out one command and returns its answer as JSON. It
	// returns an error that says what is wrong with the command, in words for
	// the operator; the state has then not changed.
	//
	// An operator may send any command at any time, and the same one again.
	Operate(ctx context.Context, cmd Command) (json.RawMessage, error)
}

// A Command is what an operator asks of a policy.
type Command struct {
	// Name is a word of the policy's choice, such as "status". Every Operable
	// policy knows "status", which changes nothing and needs no input.
	Name string

	// Input is a JSON value, or nil.
	Input json.RawMessage
}
