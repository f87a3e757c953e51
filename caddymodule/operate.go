package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// running are the apps that serve, in the order in which they were started:
// that of the configuration that is in force, and those before it that have
// requests left.
type running struct {
	mu   sync.Mutex
	apps []*App
}

// add lets a be the one that is in force, until atEnd.
func (r *running) add(a *App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps = append(r.apps, a)
	a.atEnd(func(context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.apps = slices.DeleteFunc(r.apps, func(other *App) bool { return other == a })
	})
}

// inForce returns the app whose configuration is in force, or nil.
func (r *running) inForce() *App {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.apps) == 0 {
		return nil
	}
	return r.apps[len(r.apps)-1]
}

// named returns the uses of a policy in the order of the configuration.
func (a *App) named(policyName string) []*use {
	var uses []*use
	for _, u := range a.inUse {
		if u.name == policyName {
			uses = append(uses, u)
		}
	}
	slices.SortStableFunc(uses, func(a, b *use) int { return comparePlaces(a.place, b.place) })
	return uses
}

// operated is the answer to a command: what each instance of the policy says.
// Sites whose options for a policy are the same share an instance.
type operated struct {
	Instances []operatedInstance `json:"instances"`

	// Error is set if an instance could not be asked.
	Error string `json:"error,omitempty"`
}

type operatedInstance struct {
	Instance string          `json:"instance"`
	At       []string        `json:"at,omitempty"` // where in the Caddyfile it is used
	Output   json.RawMessage `json:"output,omitempty"`
	Error    string          `json:"error,omitempty"`
}

const (
	// operateTimeout is how long a policy may take to carry out a command.
	operateTimeout = 10 * time.Second
	// maxCommand is the size of the largest input of a command.
	maxCommand = 8 << 20
	// statusCommand is the command that changes nothing.
	statusCommand = "status"
)

// serveOperate passes a command on to a policy.
func serveOperate(w http.ResponseWriter, r *http.Request) error {
	name, command, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/usher/policies/"), "/")
	if !ok || name == "" || command == "" {
		return apiError(http.StatusNotFound, "write /usher/policies/<policy>/<command>, such as /usher/policies/keys/status")
	}
	if r.Method != http.MethodPost && (r.Method != http.MethodGet || command != statusCommand) {
		return apiError(http.StatusMethodNotAllowed, "method %s is not allowed; use POST", r.Method)
	}
	cmd := policy.Command{Name: command}
	input, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	switch {
	case err != nil:
		return apiError(http.StatusBadRequest, "read the input of the command: %w", err)
	case len(input) > 0 && !json.Valid(input):
		return apiError(http.StatusBadRequest, "the input of the command is not JSON")
	case len(input) > 0:
		cmd.Input = input
	}
	s := currentShared()
	uses, err := operable(s, name)
	if err != nil {
		return err
	}
	answer, status, err := operateAll(r.Context(), uses, cmd)
	if command != statusCommand && s != nil {
		s.waiting.changed(nil)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return encodeAdmin(w, answer)
}

func apiError(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

// operable returns the uses of a policy that takes commands.
func operable(s *shared, name string) ([]*use, error) {
	var app *App
	if s != nil {
		app = s.running.inForce()
	}
	if app == nil {
		return nil, apiError(http.StatusServiceUnavailable, "no policy is in use yet")
	}
	uses := app.named(name)
	if len(uses) == 0 {
		var known []string
		for _, u := range app.inUse {
			known = append(known, u.name)
		}
		slices.Sort(known)
		return nil, apiError(http.StatusNotFound, "no site uses policy %q; these are in use: %s", name, strings.Join(slices.Compact(known), ", "))
	}
	uses = slices.DeleteFunc(uses, func(u *use) bool { return !u.instance.Kinds().Operable })
	if len(uses) == 0 {
		return nil, apiError(http.StatusNotFound, "policy %s takes no commands", name)
	}
	return uses, nil
}

// operateAll lets each instance of uses carry out the command, and returns the
// answer with its status. It returns an error if none has carried it out.
func operateAll(ctx context.Context, uses []*use, cmd policy.Command) (*operated, int, error) {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	answer := new(operated)
	var refused, failed []error
	for _, u := range uses {
		if i := slices.IndexFunc(answer.Instances, u.sameInstance); i >= 0 {
			answer.Instances[i].At = append(answer.Instances[i].At, u.places()...)
			continue
		}
		one := operatedInstance{Instance: u.instance.Name(), At: u.places()}
		var err error
		one.Output, err = u.instance.Operate(ctx, cmd)
		if err != nil {
			one.Error = err.Error()
			if _, ok := errors.AsType[*host.CommandError](err); ok {
				refused = append(refused, err)
			} else {
				failed = append(failed, fmt.Errorf("policy %s cannot be asked: %w", u.name, err))
			}
		}
		answer.Instances = append(answer.Instances, one)
	}
	switch len(answer.Instances) {
	case len(failed):
		return nil, 0, apiError(http.StatusServiceUnavailable, "%w", errors.Join(failed...))
	case len(refused):
		return nil, 0, apiError(http.StatusBadRequest, "%w", refused[0])
	}
	if len(failed) > 0 {
		answer.Error = errors.Join(failed...).Error()
		return answer, http.StatusServiceUnavailable, nil
	}
	return answer, http.StatusOK, nil
}

// places returns where the policy is used, if that is known.
func (u *use) places() []string {
	if u.place == "" {
		return nil
	}
	return []string{u.place}
}

func (u *use) sameInstance(o operatedInstance) bool { return o.Instance == u.instance.Name() }
