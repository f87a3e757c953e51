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
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/internal/freeport"
	"github.com/usherproxy/usher/policy"
)

// operatedPolicy is a selection policy that takes commands.
type operatedPolicy struct {
	selector
	name string
}

func (p operatedPolicy) Operate(_ context.Context, cmd policy.Command) (json.RawMessage, error) {
	switch cmd.Name {
	case "status":
		return json.Marshal(map[string]any{"name": p.name, "keys": []any{}})
	case "clear":
		if string(cmd.Input) != fmt.Sprintf("%q", p.name) {
			return nil, fmt.Errorf("clear %s: no such thing", cmd.Input)
		}
		return nil, nil
	case "die":
		os.Exit(1)
	}
	return nil, errors.New("unknown command " + cmd.Name)
}

// operate sends a command to the admin API.
func (st *site) operate(method, path, input string) (int, string) {
	st.t.Helper()
	req, err := http.NewRequest(method, st.admin+"/usher/policies/"+path, strings.NewReader(input))
	if err != nil {
		st.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		st.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		st.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		st.t.Errorf("%s %s answers %s, which is not JSON", method, path, text)
	}
	return resp.StatusCode, b.String()
}

// serveOperated runs sites that use the policy operated with the given names.
func serveOperated(t *testing.T, names ...string) *site {
	t.Helper()
	up := newUpstream(t, chats())
	var sites strings.Builder
	for i, name := range names {
		if i > 0 {
			fmt.Fprintf(&sites, "}\n}\nhttp://:%d {\nbind 127.0.0.1\nusher {\n", freeport.ForTest(t))
		}
		sites.WriteString(up.provider() + model(up) + "select operated {\nname " + name + "\n}\nselect backwards\n")
	}
	return serve(t, setup{global: plugins(t, "", "operated", "backwards"), usher: sites.String()})
}

// operatedName matches the names of instances, which Caddy's order decides.
var operatedName = regexp.MustCompile(`operated-[0-9]+`)

func TestOperatorsReachPolicies(t *testing.T) {
	st := serveOperated(t, "one", "two", "one")
	one := `{"instance":"I","at":["Caddyfile:37","Caddyfile:71"],"output":{"keys":[],"name":"one"}}`
	two := `{"instance":"I","at":["Caddyfile:54"],"output":{"keys":[],"name":"two"}}`
	for _, c := range []struct {
		method, path, input string
		status              int
		want                string
	}{
		{"GET", "operated/status", "", 200, `{"instances":[` + one + `,` + two + `]}`},
		{"POST", "operated/status", "{}", 200, `{"instances":[` + one + `,` + two + `]}`},
		{"POST", "operated/clear", `"two"`, 200, `{"instances":[{"instance":"I","at":["Caddyfile:37","Caddyfile:71"],"error":"clear \"two\": no such thing"},{"instance":"I","at":["Caddyfile:54"]}]}`},
		{"POST", "operated/clear", `"three"`, 400, `{"error":"clear \"three\": no such thing"}`},
		{"POST", "operated/clear", `three`, 400, `{"error":"the input of the command is not JSON"}`},
		{"POST", "operated/nothing", ``, 400, `{"error":"unknown command nothing"}`},
		{"GET", "operated/clear", ``, 405, `{"error":"method GET is not allowed; use POST"}`},
		{"DELETE", "operated/status", ``, 405, `{"error":"method DELETE is not allowed; use POST"}`},
		{"GET", "nobody/status", ``, 404, `{"error":"no site uses policy \"nobody\"; these are in use: backwards, fifo, operated"}`},
		{"GET", "backwards/status", ``, 404, `{"error":"policy backwards takes no commands"}`},
		{"GET", "operated", ``, 404, `{"error":"write /usher/policies/\u003cpolicy\u003e/\u003ccommand\u003e, such as /usher/policies/keys/status"}`},
		{"POST", "operated/clear", `"` + strings.Repeat("x", 9<<20) + `"`, 400, `{"error":"read the input of the command: http: request body too large"}`},
		{"POST", "operated/die", ``, 503, ``},
		{"GET", "operated/status", ``, 200, `{"instances":[` + one + `,` + two + `]}`},
	} {
		status, got := st.operate(c.method, c.path, c.input)
		got = operatedName.ReplaceAllString(got, "I")
		if status != c.status || c.want != "" && got != c.want {
			t.Errorf("%s %s %.20s: %d %s\nwant %d %s", c.method, c.path, c.input, status, got, c.status, c.want)
		}
	}
}

// After a reload, operators reach the policies of the new configuration. One
// that cannot start changes nothing.
func TestOperatorsReachWhatIsInForce(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	named := func(name string) setup {
		return setup{global: plugins(t, "", "operated"), usher: up.provider() + model(up) + "select operated {\nname " + name + "\n}\n"}
	}
	st := serve(t, named("old"))
	running := st.begin(chatBody)
	after(t, g.arrived, "the request")
	expect := func(name string) {
		t.Helper()
		if _, got := st.operate("GET", "operated/status", ""); !strings.Contains(got, `"name":"`+name+`"`) || strings.Count(got, "instance\"") != 1 {
			t.Errorf("status %s, want that of %s alone", got, name)
		}
	}
	expect("old")
	wrong := named("wrong")
	wrong.usher += "admit operated\n" // which it cannot, as its start finds
	if err := st.load(wrong); err == nil {
		t.Error("a policy that does not admit was accepted")
	}
	expect("old")
	if err := st.load(named("new")); err != nil {
		t.Fatal(err)
	}
	expect("new")
	g.open()
	after(t, running, "the answer")
	expect("new")
}

func TestPolicyCommand(t *testing.T) {
	st := serveOperated(t, "one", "two")
	address := strings.TrimPrefix(st.admin, "http://")
	for _, c := range []struct{ command, input, want string }{
		{"status", "", "I (Caddyfile:37):\n  keys  -\n  name  one\nI (Caddyfile:54):\n  keys  -\n  name  two\n"},
		{"clear", `"two"`, "I (Caddyfile:37):\n  refused: clear \"two\": no such thing\nI (Caddyfile:54):\n  done\n"},
	} {
		answer, err := caddymodule.Operate(address, "operated", c.command, c.input)
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		var b bytes.Buffer
		if err := caddymodule.PrintOperated(&b, answer); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(c.want, operatedName.ReplaceAllString(b.String(), "I")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.command, diff)
		}
	}
	if _, err := caddymodule.Operate(address, "operated", "clear", `"x/y"`); err == nil || !strings.Contains(err.Error(), `no such thing`) {
		t.Errorf("error %v, want that of the policy", err)
	}
	if _, err := caddymodule.Operate(address, "no/body", "status", ""); err == nil {
		t.Error("a policy of another name was asked")
	}
}

func TestAnswersOfPoliciesAreReadable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ output, want string }{
		{`null`, "-\n"},
		{`"a\u001b[1mb"`, "a [1mb\n"},
		{`[1, "x"]`, "1\nx\n"},
		{`[]`, ""},
		{`{"store": "memory", "waiting": 3, "queues": {}, "keys": [
			{"key": "openai/k1", "state": "cooldown", "left": 2.5},
			{"key": "openai/k2", "state": "ok", "probe": true}],
			"limits": {"fleet": {"used": 1, "limit": 2}}}`, `
store    memory
waiting  3
queues   -
keys
  KEY        STATE     LEFT  PROBE
  openai/k1  cooldown  2.5   -
  openai/k2  ok        -     true
limits
  fleet
    used   1
    limit  2
`},
		{`[{"key": "k1", "windows": [{"name": "5h", "used": 0.5}]}, {"key": "k2", "windows": []}]`, `
key  k1
windows
  NAME  USED
  5h    0.5

key      k2
windows  -
`},
	} {
		var b bytes.Buffer
		err := caddymodule.PrintOperated(&b, []byte(`{"instances": [{"instance": "x-1", "output": `+c.output+`}]}`))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.output, diff)
		}
	}
	if err := caddymodule.PrintOperated(io.Discard, []byte("oh")); err == nil {
		t.Error("an answer that is not JSON was printed")
	}
}
