package caddymodule_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/tracing"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/internal/freeport"
)

// The secrets of the keys k1, k2 and k3 of all providers.
const (
	secret1 = "sk-test-one-0123456789"
	secret2 = "sk-test-two-0123456789"
	secret3 = "sk-test-three-0123456789"
)

// A setup is what a test writes into its Caddyfile.
type setup struct {
	global string // global options
	site   string // directives of the site besides usher
	usher  string // the block of the directive usher
	format string // of the log, from a new line on
}

// A site is a Caddy that runs in this process. There is one at a time, so tests
// that use one do not run in parallel.
type site struct {
	t          *testing.T
	url, admin string
	port       int
	logFile    string
	began      time.Time
	client     *http.Client
}

// serve runs a Caddy with an open site until the next one. At the end of the
// test nothing may run or wait any more.
func serve(t *testing.T, s setup) *site {
	t.Helper()
	for name, value := range map[string]string{"TEST_KEY_1": secret1, "TEST_KEY_2": secret2, "TEST_KEY_3": secret3} {
		t.Setenv(name, value)
	}
	port, adminPort := freeport.ForTest(t), freeport.ForTest(t)
	transport := &http.Transport{DisableCompression: true}
	st := &site{
		t: t, began: time.Now(), port: port, url: fmt.Sprintf("http://127.0.0.1:%d", port), admin: fmt.Sprintf("http://127.0.0.1:%d", adminPort),
		logFile: filepath.Join(t.TempDir(), "log.json"), client: &http.Client{Transport: transport},
	}
	t.Cleanup(transport.CloseIdleConnections)
	if err := st.load(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.checkIdle)
	return st
}

// load gives the running Caddy the configuration s at the addresses of st.
func (st *site) load(s setup) error {
	st.t.Helper()
	text := fmt.Sprintf(`{
	admin %s
	persist_config off
	servers {
		protocols h1 h2c
	}
	log {
		level DEBUG
		output file %s {
			roll_disabled
		}%s
	}
	storage file_system %s
	%s
}
http://:%d {
	bind 127.0.0.1
	log
	%s
	usher {
		%s
	}
}
`, strings.TrimPrefix(st.admin, "http://"), st.logFile, s.format, filepath.Dir(st.logFile), s.global, st.port, s.site, s.usher)
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			st.t.Errorf("unexpected warning: %s", w)
		}
	}
	// A server that ends may close a connection while a request is sent on it.
	defer st.client.CloseIdleConnections()
	if err := caddy.Load(config, true); err != nil {
		return err
	}
	eventually(st.t, st.oneListener)
	return nil
}

// oneListener tells if a server that has ended, after a reload, still listens beside
// the one that has begun. The system gives new connections to both, and resets those
// that the old one has not accepted when it closes.
func (st *site) oneListener() error {
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return err
	}
	const listens = "0A"
	if n := strings.Count(string(sockets), fmt.Sprintf(":%04X 00000000:0000 %s ", st.port, listens)); n != 1 {
		return fmt.Errorf("%d sockets listen at port %d, want one", n, st.port)
	}
	return nil
}

// checkIdle checks that nothing runs or waits any more, neither as the host
// counts it nor as the plugins do.
func (st *site) checkIdle() {
	st.t.Helper()
	eventually(st.t, func() error {
		if counts := caddymodule.Counted(); len(counts) > 0 {
			return fmt.Errorf("the host counts %v", counts)
		}
		for _, p := range st.status() {
			if p.Running != 0 || p.Waiting != 0 {
				return fmt.Errorf("plugin %s: %d run and %d wait", p.Name, p.Running, p.Waiting)
			}
		}
		return nil
	})
	if st.t.Failed() {
		st.t.Logf("the log of Caddy:\n%s", st.log())
	}
}

// pluginStatus is what the admin API says of a plugin.
type pluginStatus struct {
	Name             string
	PID, Restarts    int
	Running, Waiting int
}

func (st *site) status() []pluginStatus {
	st.t.Helper()
	var status struct{ Plugins []pluginStatus }
	if err := json.Unmarshal(st.adminGet("/usher/status", http.StatusOK), &status); err != nil {
		st.t.Fatal(err)
	}
	return status.Plugins
}

// await waits until as many requests run and wait.
func (st *site) await(running, waiting int) {
	st.t.Helper()
	eventually(st.t, func() error {
		gotRunning, gotWaiting := 0, 0
		for _, p := range st.status() {
			gotRunning, gotWaiting = gotRunning+p.Running, gotWaiting+p.Waiting
		}
		if gotRunning != running || gotWaiting != waiting {
			return fmt.Errorf("%d run and %d wait, want %d and %d", gotRunning, gotWaiting, running, waiting)
		}
		return nil
	})
}

// adminGet returns an answer of the admin API.
func (st *site) adminGet(path string, status int) []byte {
	st.t.Helper()
	resp, err := http.Get(st.admin + path)
	if err != nil {
		st.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		st.t.Fatal(err)
	}
	if resp.StatusCode != status {
		st.t.Fatalf("GET %s: %s, want %d\n%s", path, resp.Status, status, body)
	}
	return body
}

// log returns what Caddy has logged.
func (st *site) log() string {
	text, err := os.ReadFile(st.logFile)
	if err != nil {
		st.t.Error(err)
	}
	return string(text)
}

// A reply is an answer with its whole body.
type reply struct {
	*http.Response
	body  string
	since time.Duration // from the beginning of its site
}

// id is the ID of the request.
func (r *reply) id() string { return r.Header.Get("X-Usher-Request-Id") }

// An option changes a request before it is sent.
type option func(*http.Request)

func header(name, value string) option {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

// inTrace lets the request be part of a trace.
func inTrace(id string) option { return header("Traceparent", "00-"+id+"-"+callerSpan+"-01") }

func within(ctx context.Context) option {
	return func(r *http.Request) { *r = *r.WithContext(ctx) }
}

const (
	chatPath = "/v1/chat/completions"
	// chatBody asks for m, the model that all providers serve.
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`
	streamBody = `{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true}`
)

// open sends a request, whose answer the caller closes.
func (st *site) open(method, path, body string, options ...option) (*http.Response, error) {
	req, err := http.NewRequest(method, st.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		o(req)
	}
	return st.client.Do(req)
}

// send sends a request and reads the answer.
func (st *site) send(method, path, body string, options ...option) (*reply, error) {
	resp, err := st.open(method, path, body, options...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return &reply{resp, string(text), time.Since(st.began)}, err
}

// do is send for requests that are answered.
func (st *site) do(method, path, body string, options ...option) *reply {
	st.t.Helper()
	r, err := st.send(method, path, body, options...)
	if err != nil {
		st.t.Fatal(err)
	}
	return r
}

// ask sends body as a chat, and checks the status of the answer.
func (st *site) ask(body string, status int, options ...option) *reply {
	st.t.Helper()
	r := st.do(http.MethodPost, chatPath, body, options...)
	if r.StatusCode != status {
		st.t.Errorf("status %d, want %d: %s\n%s", r.StatusCode, status, r.body, st.explain(r.id()))
	}
	return r
}

// begin sends body as a chat in the background.
func (st *site) begin(body string, options ...option) <-chan *reply {
	done := make(chan *reply, 1)
	go func() {
		r, err := st.send(http.MethodPost, chatPath, body, options...)
		if err != nil {
			r = &reply{Response: &http.Response{Status: err.Error(), Header: http.Header{}}}
		}
		done <- r
	}()
	return done
}

// decision returns the record of a request, once it has ended.
func (st *site) decision(id string) *caddymodule.Decision {
	st.t.Helper()
	d := new(caddymodule.Decision)
	eventually(st.t, func() error {
		resp, err := http.Get(st.admin + "/usher/decisions/" + id)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("decision about %q: %s", id, resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(d)
	})
	return d
}

// decisions returns the records of the requests to st, newest first.
func (st *site) decisions() []*caddymodule.Decision {
	st.t.Helper()
	var all []*caddymodule.Decision
	if err := json.Unmarshal(st.adminGet("/usher/decisions", http.StatusOK), &all); err != nil {
		st.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(d *caddymodule.Decision) bool { return d.Time.Before(st.began) })
}

// last returns the record of the request that ended last, once there is one.
func (st *site) last() *caddymodule.Decision {
	st.t.Helper()
	var all []*caddymodule.Decision
	eventually(st.t, func() error {
		if all = st.decisions(); len(all) == 0 {
			return errors.New("no decisions")
		}
		return nil
	})
	return all[0]
}

// explain returns the record of a request in words, for failures.
func (st *site) explain(id string) string {
	if id == "" {
		return ""
	}
	var b bytes.Buffer
	caddymodule.Explain(&b, st.decision(id))
	return b.String()
}

// soon is how long something may take that should happen at once, on a machine
// that has more to do than to run tests.
const soon = time.Minute

// after returns what comes from a channel.
func after[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("%s did not come within %s", what, soon)
		panic("unreachable")
	}
}
