package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/usherproxy/usher/internal/pluginhost"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI is the part of Caddy's admin API that tells what Usher does, and
// lets operators talk to policies:
//
//	GET  /usher/status                       the plugins, and how much runs and waits
//	GET  /usher/decisions                    the last decisions, newest first
//	GET  /usher/decisions/{id}               the decision about one request
//	GET  /usher/policies/{policy}/status      what a policy knows
//	POST /usher/policies/{policy}/{command}  corrects it, with JSON as input
//
// A decision is the whole story of a request: what each policy said of each
// candidate and how long it took, how long the request waited, and how each
// attempt ended. The last 1000 are kept, and fewer with thousands of candidates.
//
// The commands of a policy are its own; see its documentation. A command goes
// to every instance of the policy that is in use, and the answer is JSON:
//
//	{"instances": [{"instance": "keys-1", "at": ["Caddyfile:30"], "output": ...}]}
//
// An instance that refuses the command has an "error" instead of its output.
// If all do, or one cannot be asked, the answer has an "error" and the status
// 400 or 503; it has 404 if no site uses such a policy.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.usher", New: func() caddy.Module { return adminAPI{} }}
}

// Routes returns the routes.
func (adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/usher/status", Handler: caddy.AdminHandlerFunc(serveStatus)},
		{Pattern: "/usher/decisions", Handler: caddy.AdminHandlerFunc(serveDecisions)},
		{Pattern: "/usher/decisions/", Handler: caddy.AdminHandlerFunc(serveDecision)},
		{Pattern: "/usher/policies/", Handler: caddy.AdminHandlerFunc(serveOperate)},
	}
}

// pluginStatus is what /usher/status says of a plugin.
type pluginStatus struct {
	Name     string           `json:"name"`
	State    pluginhost.State `json:"state"`
	PID      int              `json:"pid"` // 0 while it is being restarted
	Restarts int              `json:"restarts"`
	Running  int              `json:"running"`
	Waiting  int              `json:"waiting"`
}

func serveStatus(w http.ResponseWriter, r *http.Request) error {
	plugins := []pluginStatus{}
	pluginPool.Range(func(_, value any) bool {
		p, ok := value.(pooledPlugin)
		if ok {
			running, waiting := p.Held()
			plugins = append(plugins, pluginStatus{p.Name(), p.State(), p.PID(), p.Restarts(), running, waiting})
		}
		return true
	})
	slices.SortFunc(plugins, func(a, b pluginStatus) int { return strings.Compare(a.Name, b.Name) })
	return writeAdmin(w, r, map[string]any{"plugins": plugins})
}

// shownDecisions is how many decisions /usher/decisions shows.
const shownDecisions = 100

func serveDecisions(w http.ResponseWriter, r *http.Request) error {
	last := []*decision{}
	if s := currentShared(); s != nil {
		last = s.decisions.last(shownDecisions)
	}
	return writeAdmin(w, r, last)
}

func serveDecision(w http.ResponseWriter, r *http.Request) error {
	id := strings.TrimPrefix(r.URL.Path, "/usher/decisions/")
	if s := currentShared(); s != nil {
		if d := s.decisions.find(id); d != nil {
			return writeAdmin(w, r, d)
		}
	}
	return caddy.APIError{
		HTTPStatus: http.StatusNotFound,
		Err:        fmt.Errorf("no decision about request %q; at most the last %d are kept", id, keptDecisions),
	}
}

// currentShared returns what the running configurations share, or nil.
func currentShared() *shared {
	var current *shared
	sharedPool.Range(func(_, value any) bool {
		current, _ = value.(*shared)
		return true
	})
	return current
}

func writeAdmin(w http.ResponseWriter, r *http.Request, v any) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("method %s is not allowed; use GET", r.Method)}
	}
	w.Header().Set("Content-Type", "application/json")
	return encodeAdmin(w, v)
}

func encodeAdmin(w http.ResponseWriter, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

var _ caddy.AdminRouter = adminAPI{}
