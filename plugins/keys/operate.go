package keys

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/usherproxy/usher/policy"
)

// The commands of operators.
const (
	commandStatus     = "status"
	commandSetWindows = "set-windows"
	commandSetAccount = "set-account"
	commandSetHealth  = "set-health"
	commandClear      = "clear"
)

var _ policy.Operable = (*selector)(nil)

// Operate carries out a command of an operator. It does not block.
func (s *selector) Operate(_ context.Context, cmd policy.Command) (json.RawMessage, error) {
	now := s.Clock()
	switch cmd.Name {
	case commandStatus:
		return operate(cmd, func(in statusInput) (any, error) { return s.status(now, in), nil })
	case commandSetWindows:
		return operate(cmd, func(in windowsInput) (any, error) { return s.setWindows(now, in) })
	case commandSetAccount:
		return operate(cmd, func(in accountInput) (any, error) { return s.setAccount(now, in) })
	case commandSetHealth:
		return operate(cmd, func(in healthInput) (any, error) { return s.setHealth(now, in) })
	case commandClear:
		return operate(cmd, func(in clearInput) (any, error) { return s.clear(now, in) })
	}
	return nil, fmt.Errorf("no such command %q; there are: %s", cmd.Name,
		strings.Join([]string{commandStatus, commandSetWindows, commandSetAccount, commandSetHealth, commandClear}, ", "))
}

// operate decodes the input of a command strictly, and encodes its answer.
func operate[I any](cmd policy.Command, do func(I) (any, error)) (json.RawMessage, error) {
	var in I
	if len(cmd.Input) > 0 {
		dec := json.NewDecoder(bytes.NewReader(cmd.Input))
		dec.DisallowUnknownFields()
		err := dec.Decode(&in)
		if err == nil && !errors.Is(discard(dec), io.EOF) {
			err = errors.New("more than one JSON value")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: input: %w", cmd.Name, inputError(err))
		}
	}
	answer, err := do(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Name, err)
	}
	return json.Marshal(answer)
}

func discard(dec *json.Decoder) error {
	_, err := dec.Token()
	return err
}

// inputError says what a decoding error means to an operator.
func inputError(err error) error {
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("no such member %s", field)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: a %s is not what is wanted there", e.Field, e.Value)
	}
	return err
}

// A target names subjects as operators do.
type target struct {
	// Provider is the only one that must be there. Alone it names the provider
	// itself.
	Provider string `json:"provider"`

	// Key or Account names one of the provider's.
	Key     string `json:"key"`
	Account string `json:"account"`

	// Model narrows a key down to one upstream model.
	Model string `json:"model"`
}

func (t target) check() error {
	switch {
	case t.Provider == "":
		return errors.New("provider: is missing")
	case t.Key != "" && t.Account != "":
		return errors.New("key and account: name one of them")
	case t.Model != "" && t.Key == "":
		return errors.New("model: goes with key only")
	}
	return nil
}

// checkHolder is check for what a provider itself cannot have.
func (t target) checkHolder() error {
	if err := t.check(); err != nil {
		return err
	}
	if t.Key == "" && t.Account == "" {
		return errors.New("key or account: is missing")
	}
	return nil
}

// id returns the name of the subject, but for the version of a key.
func (t target) id() subjectID {
	switch {
	case t.Model != "":
		return subjectID{Kind: kindModel, Provider: t.Provider, Name: t.Key, Model: t.Model}
	case t.Key != "":
		return subjectID{Kind: kindKey, Provider: t.Provider, Name: t.Key}
	case t.Account != "":
		return subjectID{Kind: kindAccount, Provider: t.Provider, Name: t.Account}
	}
	return subjectID{Kind: kindProvider, Provider: t.Provider}
}

// targetsLocked returns the subjects that an operator means: all versions of a
// key that are in use. If there is none, it returns one that the next version
// takes over.
func (s *state) targetsLocked(now time.Time, t target) []*subject {
	id := t.id()
	var found []*subject
	for _, sub := range s.subjects {
		if anyVersion(sub.id) == id && !sub.id.early() {
			found = append(found, sub)
		}
	}
	if len(found) == 0 {
		found = append(found, s.subjectLocked(now, id))
	}
	return found
}

// An applied answer says what became of a command.
type applied struct {
	// Applied is how many subjects the command was about: a key and each of its
	// models count once for each version of the secret that is in use.
	Applied int `json:"applied"`
}

// change lets change alter all subjects that an operator means, and tells
// of the facts that it returns.
func (s *selector) change(now time.Time, t target, change func(*subject) []fact) applied {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	subjects := s.state.targetsLocked(now, t)
	for _, sub := range subjects {
		s.state.changeLocked(now, sub, change)
	}
	return applied{len(subjects)}
}

func (s *state) changeLocked(now time.Time, sub *subject, change func(*subject) []fact) {
	facts := change(sub)
	sub.touch(now)
	sub.publishLocked()
	for _, f := range facts {
		s.tellLocked(sub, f)
	}
}

type windowsInput struct {
	target
	Windows []observation `json:"windows"`
}

// setWindows takes a snapshot of quotas.
func (s *selector) setWindows(now time.Time, in windowsInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if len(in.Windows) == 0 || len(in.Windows) > maxWindows {
		return nil, fmt.Errorf("windows: are %d, want 1 to %d", len(in.Windows), maxWindows)
	}
	for i, w := range in.Windows {
		if err := w.check(now); err != nil {
			return nil, fmt.Errorf("windows[%d]: %w", i, err)
		}
	}
	return s.change(now, in.target, func(sub *subject) []fact {
		var facts []fact
		for _, o := range in.Windows {
			w, _ := sound(o.window(), now)
			windows, ok := withWindow(sub.draft.Windows, w)
			if ok {
				sub.draft.Windows = windows
				facts = append(facts, windowFact(w.Name))
			}
		}
		return facts
	}), nil
}

func (o observation) check(now time.Time) error {
	switch {
	case o.Name == "":
		return errors.New("name: is missing")
	case o.Kind != "" && o.Kind != policy.ScopeRequests && o.Kind != policy.ScopeTokens:
		return fmt.Errorf("kind: is %q, want %q, %q, or none for a quota", o.Kind, policy.ScopeRequests, policy.ScopeTokens)
	case !(o.Used >= 0 && o.Used <= 1):
		return fmt.Errorf("used: is %v, want the part that is used, 0 to 1", o.Used)
	case !(o.Limit >= 0):
		return fmt.Errorf("limit: is %v, want 0 or more", o.Limit)
	case o.Length < 0:
		return fmt.Errorf("length: is %v, want 0s or more", o.Length)
	case o.ObservedAt.After(now):
		return fmt.Errorf("observed_at: is %v, which is yet to come", o.ObservedAt)
	}
	return nil
}

type accountInput struct {
	target
	AccountState
}

// setAccount takes how a key or an account stands.
func (s *selector) setAccount(now time.Time, in accountInput) (any, error) {
	if err := in.checkHolder(); err != nil {
		return nil, err
	}
	switch {
	case in.target.Model != "":
		return nil, errors.New("model: has no standing of its own")
	case !slices.Contains(Standings(), in.Standing):
		return nil, fmt.Errorf("standing: is %q, want one of %q", in.Standing, Standings())
	case in.At.After(now):
		return nil, fmt.Errorf("at: is %v, which is yet to come", in.At)
	case in.At.IsZero():
		in.At = now
	}
	return s.change(now, in.target, func(sub *subject) []fact {
		if !in.AccountState.newer(sub.draft.Account) {
			return nil
		}
		sub.draft.Account = in.AccountState
		return []fact{factAccount}
	}), nil
}

type healthInput struct {
	target
	Health *float64 `json:"health"`
	Format string   `json:"format"`
}

// setHealth takes what an operator thinks of a key.
func (s *selector) setHealth(now time.Time, in healthInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	switch {
	case in.Key == "" || in.Model != "":
		return nil, errors.New("key: health is that of a key, whatever the model")
	case in.Health == nil || !(*in.Health >= 0 && *in.Health <= 1):
		return nil, errors.New("health: want a number from 0 to 1")
	}
	h := Health{Format: in.Format, Score: *in.Health, At: now}
	return s.change(now, in.target, func(sub *subject) []fact {
		health, ok := withHealth(sub.draft.Health, h)
		if !ok {
			return nil
		}
		sub.draft.Health = health
		return []fact{healthFact(h.Format)}
	}), nil
}

type clearInput struct {
	target
	Facts []string `json:"facts"`
}

// What can be cleared, and the facts that this stands for.
var clearable = map[string]func(f fact, kind string) bool{
	"quota":    func(f fact, _ string) bool { return f == factQuota },
	"cooldown": func(f fact, _ string) bool { return f == factCooldown },
	"windows":  func(_ fact, kind string) bool { return kind == windowFacts },
	"account":  func(f fact, _ string) bool { return f == factAccount },
	"breakers": func(f fact, kind string) bool { return f == factRefused || kind == circuitFacts },
	"learned":  func(f fact, _ string) bool { return f == factLearned },
	"health":   func(_ fact, kind string) bool { return kind == healthFacts },
}

// clearableWords are the keys of clearable.
var clearableWords = []string{"quota", "cooldown", "windows", "account", "breakers", "learned", "health"}

// clear forgets facts of a subject. With those of a key go those of its models,
// and of the account that it is alone in.
func (s *selector) clear(now time.Time, in clearInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	for i, word := range in.Facts {
		if clearable[word] == nil {
			return nil, fmt.Errorf("facts[%d]: is %q, want some of %q", i, word, clearableWords)
		}
	}
	if len(in.Facts) == 0 {
		in.Facts = clearableWords
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	n := 0
	for _, sub := range s.state.subjects {
		id := anyVersion(sub.id)
		if in.Key != "" && in.Model == "" && (id.Kind == kindModel || id.Kind == kindAccount) {
			id.Kind, id.Model = kindKey, ""
		}
		if id != in.id() {
			continue
		}
		if sub.id.Kind != kindAccount || in.Account != "" {
			n++
		}
		s.state.changeLocked(now, sub, func(sub *subject) []fact { return sub.clearAllLocked(now, in.Facts) })
	}
	return applied{n}, nil
}

// clearAllLocked clears the facts that words stand for, and returns them.
func (s *subject) clearAllLocked(now time.Time, words []string) []fact {
	cleared := slices.DeleteFunc(s.factsLocked(), func(f fact) bool {
		kind, _ := f.cut()
		return !slices.ContainsFunc(words, func(word string) bool { return clearable[word](f, kind) })
	})
	for _, f := range cleared {
		s.clearLocked(now, f)
	}
	return cleared
}
