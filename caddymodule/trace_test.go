package caddymodule_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

const serverSpan = "POST /v1/chat/completions"

// expectAttrs checks some attributes; an empty value stands for none.
func (s *span) expectAttrs(t *testing.T, want map[string]string) {
	t.Helper()
	got := make(map[string]string)
	for name := range want {
		got[name] = s.attr(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: attributes (-want +got):\n%s", s, diff)
	}
}

func (s *span) expectEvents(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.events()); diff != "" {
		t.Errorf("%s: events (-want +got):\n%s", s, diff)
	}
}

func (s *span) expectStatus(t *testing.T, code tracepb.Status_StatusCode, message string) {
	t.Helper()
	if s.GetStatus().GetCode() != code || s.GetStatus().GetMessage() != message {
		t.Errorf("%s: status %v, want %s %q", s, s.GetStatus(), code, message)
	}
}

const (
	unset  = tracepb.Status_STATUS_CODE_UNSET
	failed = tracepb.Status_STATUS_CODE_ERROR
)

// expectParents checks who is below whom, and that nobody outlives its parent.
func (tr trace) expectParents(t *testing.T, server *span, plugin map[string]string) {
	t.Helper()
	for _, s := range tr {
		parent := server
		if s == server {
			continue
		}
		if name, ok := plugin[s.GetName()]; ok {
			parent = nil
			for _, p := range tr {
				if p.GetName() == name && s.below(p) {
					parent = p
				}
			}
		}
		if parent == nil || !s.below(parent) {
			t.Errorf("%s is below %x", s, s.GetParentSpanId())
		}
		if s.service == "usher" && s.GetEndTimeUnixNano() > server.GetEndTimeUnixNano() {
			t.Errorf("%s outlives the request", s)
		}
	}
}

var pluginParents = map[string]string{"keys select": "usher.select", "fifo admit": "usher.admit"}

func TestTraceTellsTheWholeStory_B134(t *testing.T) {
	for name, c := range map[string]struct{ site, server string }{
		"own span":        {"", serverSpan},
		"Caddy's tracing": {"tracing {\nspan gateway\n}", "gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, limited("Retry-After", "60"), chats())
			st := serve(t, setup{
				site: c.site,
				usher: up.providerOf(key(1)+key(2)+key(3, "disabled")) + inOrder + model(up) +
					"caller alice {\nkey {env.TEST_KEY_3}\ngroup research\npriority 5\n}\ngroup research {\n}\n",
			})
			id := newTraceID()
			r := st.ask(chatBody, http.StatusOK, inTrace(id), bearer(secret3))
			tr := spans.await(t, id, c.server+" 1", "usher.select 1", "usher.admit 2", "chat m 2", "keys select 1", "fifo admit 2", "fifo release 2")
			candidate := func(n int) string { return fmt.Sprintf("%s/k%d/m", up.name, n) }

			server := tr.named(t, c.server, 0)
			if got := fmt.Sprintf("%x", server.GetParentSpanId()); got != callerSpan || server.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
				t.Errorf("%s of kind %s is below %s", server, server.GetKind(), got)
			}
			tr.expectParents(t, server, pluginParents)
			server.expectAttrs(t, map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "usher.request.id": r.id(), "usher.caller.id": "alice",
				"usher.caller.group": "research", "usher.priority": "5", "usher.disposition": "ok", "http.response.status_code": "200",
			})
			if c.site == "" {
				server.expectAttrs(t, map[string]string{"http.route": chatPath, "http.request.method": "POST", "url.path": chatPath, "url.scheme": "http"})
			}
			server.expectStatus(t, unset, "")

			selection := tr.named(t, "usher.select", 0)
			selection.expectEvents(t,
				"verdict candidate="+candidate(1)+" policy=keys verdict=eligible",
				"verdict candidate="+candidate(2)+" policy=keys verdict=eligible",
				"verdict candidate="+candidate(3)+" policy=keys reason=disabled verdict=skipped",
			)
			for i := range 2 {
				admission := tr.named(t, "usher.admit", i)
				admission.expectEvents(t, "admitted candidate="+candidate(i+1))
				admission.expectAttrs(t, map[string]string{"usher.policy": "fifo", "usher.candidate": candidate(i + 1), "usher.lease": fmt.Sprint(i + 1)})
			}

			first, second := tr.named(t, "chat m", 0), tr.named(t, "chat m", 1)
			first.expectAttrs(t, map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": up.name, "gen_ai.request.model": "m", "openai.api.type": "chat_completions",
				"server.address": "127.0.0.1", "server.port": up.URL[strings.LastIndex(up.URL, ":")+1:], "usher.candidate": candidate(1), "usher.attempt": "1",
				"usher.disposition": "rate_limited", "error.type": "rate_limited", "http.response.status_code": "429",
			})
			first.expectStatus(t, failed, "rate_limited")
			if first.GetKind() != tracepb.Span_SPAN_KIND_CLIENT || first.attr("usher.until") == "" {
				t.Errorf("first attempt %v", first)
			}
			second.expectAttrs(t, map[string]string{
				"usher.candidate": candidate(2), "usher.attempt": "2", "usher.disposition": "ok", "error.type": "", "http.response.status_code": "200",
				"gen_ai.usage.input_tokens": "3", "gen_ai.usage.output_tokens": "2",
			})
			second.expectEvents(t, "first_content")
			second.expectStatus(t, unset, "")
			for _, h := range up.expect(t, 2) {
				if h.Header.Get("Traceparent") != "" {
					t.Error("the provider got the trace")
				}
			}
		})
	}
}

func TestTraceTellsOfTheWait(t *testing.T) {
	g, second := newGate(t), newGate(t)
	up := newUpstream(t, g.then(chats()), second.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	holder := st.begin(chatBody)
	after(t, g.arrived, "the request that holds the key")
	first := st.begin(chatBody)
	st.await(1, 1)
	id := newTraceID()
	last := st.begin(chatBody, inTrace(id))
	st.await(1, 2)
	g.open()
	after(t, second.arrived, "the first that waited")
	second.open()
	for _, r := range []<-chan *reply{holder, first, last} {
		after(t, r, "the answer")
	}
	tr := spans.await(t, id, serverSpan+" 1", "usher.select 2", "usher.admit 1", "chat m 1", "keys select 2", "fifo admit 1", "fifo release 1")
	candidate := up.name + "/k1/m"
	tr.named(t, "usher.admit", 0).expectEvents(t, "enqueued position=2", "admitted candidate="+candidate)
	tr.named(t, "usher.select", 0).expectEvents(t,
		"verdict candidate="+candidate+" limit=1 observed=1 policy=keys reason=key_concurrency verdict=busy")
	tr.named(t, "usher.select", 1).expectEvents(t, "verdict candidate="+candidate+" policy=keys verdict=eligible")
	if s, a := tr.named(t, "usher.select", 0), tr.named(t, "usher.admit", 0); s.GetEndTimeUnixNano() > a.GetEndTimeUnixNano() {
		t.Error("the selection includes the wait")
	}
	tr.expectParents(t, tr.named(t, serverSpan, 0), pluginParents)
}

func TestTraceTellsHowTheLineMoves(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		global: plugins(t, "", "moving"),
		usher:  up.provider() + model(up) + "select none\nadmit moving\n",
	})
	id := newTraceID()
	st.ask(chatBody, http.StatusOK, inTrace(id))
	tr := spans.await(t, id, serverSpan+" 1", "usher.admit 1", "chat m 1")
	tr.named(t, "usher.admit", 0).expectEvents(t,
		"enqueued position=3", "moved position=2", "moved position=1", "admitted candidate="+up.name+"/k1/m")
}

func TestTraceOfARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		usher  string
		status int
		want   []string
		check  func(*testing.T, trace)
	}{
		"by an admission policy": {
			"select none\nadmit rejecting\n", 503,
			[]string{serverSpan + " 1", "usher.admit 1", "rejecting admit 1"},
			func(t *testing.T, tr trace) {
				tr.named(t, "usher.admit", 0).expectEvents(t, "rejected reason=policy")
				tr.named(t, "usher.admit", 0).expectStatus(t, unset, "")
				tr.named(t, serverSpan, 0).expectAttrs(t, map[string]string{"usher.refusal": "policy", "usher.disposition": "denied"})
			},
		},
		"by a selection policy": {
			"select picky\n", 503,
			[]string{serverSpan + " 1", "usher.select 1", "picky select 1"},
			func(t *testing.T, tr trace) { tr.named(t, "usher.select", 0).expectStatus(t, unset, "") },
		},
		"because a policy failed": {
			"select failing\n", 503,
			[]string{serverSpan + " 1", "usher.select 1", "failing select 1"},
			func(t *testing.T, tr trace) {
				tr.named(t, "usher.select", 0).expectStatus(t, failed, "out of order")
				tr.named(t, serverSpan, 0).expectStatus(t, failed, "denied")
			},
		},
		"nobody left, both asked at once": {
			"", 503, []string{serverSpan + " 1", "usher.select 1", "keys select 1"}, // and no admission
			func(*testing.T, trace) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, chats())
			keys := key(1)
			if c.usher == "" {
				keys = key(1, "disabled")
			}
			st := serve(t, setup{
				global: plugins(t, otelEnv(), "rejecting", "picky", "failing"),
				usher:  up.providerOf(keys) + model(up) + c.usher,
			})
			id := newTraceID()
			r := st.do(http.MethodPost, chatPath, chatBody, inTrace(id))
			if r.StatusCode/100 == 2 {
				t.Errorf("status %s", r.Status)
			}
			c.check(t, spans.await(t, id, c.want...))
		})
	}
}

// otelEnv lets a plugin export its spans, too.
func otelEnv() string {
	var lines []string
	for name, value := range spans.environment() {
		lines = append(lines, fmt.Sprintf("env %s %s", name, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A trace is complete also if its caller left.
func TestTraceOfACallerWhoLeft_B132(t *testing.T) {
	g := newGate(t)
	up := newUpstream(t, g.then(chats()))
	st := serve(t, setup{usher: up.providerOf(key(1, "limit concurrency 1")) + model(up)})
	running, waiting := newTraceID(), newTraceID()
	one := st.beginAndLeave(chatBody, inTrace(running))
	after(t, g.arrived, "the request")
	two := st.beginAndLeave(chatBody, inTrace(waiting))
	st.await(1, 1)
	two.leave()
	tr := spans.await(t, waiting, serverSpan+" 1", "usher.select 1", "usher.admit 1", "keys select 1", "fifo admit 1")
	admission := tr.named(t, "usher.admit", 0)
	admission.expectEvents(t, "enqueued position=1", "client_gone")
	admission.expectStatus(t, unset, "")
	tr.named(t, serverSpan, 0).expectStatus(t, unset, "")
	tr.named(t, serverSpan, 0).expectAttrs(t, map[string]string{"usher.disposition": "client_gone", "http.response.status_code": ""})

	one.leave()
	tr = spans.await(t, running, serverSpan+" 1", "usher.select 1", "usher.admit 1", "chat m 1", "keys select 1", "fifo admit 1", "fifo release 1")
	tr.named(t, "chat m", 0).expectAttrs(t, map[string]string{"usher.disposition": "client_gone", "error.type": ""})
	tr.named(t, "chat m", 0).expectStatus(t, unset, "")
	tr.expectParents(t, tr.named(t, serverSpan, 0), pluginParents)
}

func TestTraceTellsWhyAConnectionFailed(t *testing.T) {
	up := newAbsent(t)
	st := serve(t, setup{usher: up.provider() + model(up)})
	id := newTraceID()
	st.ask(chatBody, http.StatusBadGateway, inTrace(id))
	tr := spans.await(t, id, serverSpan+" 1", "usher.select 1", "usher.admit 1", "chat m 1", "keys select 1", "fifo admit 1", "fifo release 1")
	if m := tr.named(t, "chat m", 0).GetStatus().GetMessage(); !strings.Contains(m, "connection refused") {
		t.Errorf("status %q does not tell why", m)
	}
	tr.named(t, serverSpan, 0).expectAttrs(t, map[string]string{"error.type": "502", "usher.refusal": "connect_failed"})
}

func TestUnsampledTraceIsNotExported_B135(t *testing.T) {
	for name, site := range map[string]string{"own span": "", "Caddy's tracing": "tracing"} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{site: site, usher: up.provider("trace_context") + model(up)})
			unsampled, sampled := newTraceID(), newTraceID()
			st.ask(chatBody, http.StatusOK, header("Traceparent", "00-"+unsampled+"-"+callerSpan+"-00"))
			st.ask(chatBody, http.StatusOK, inTrace(sampled))
			server := map[bool]string{true: serverSpan, false: "handler"}[site == ""]
			spans.await(t, sampled, server+" 1", "usher.select 1", "usher.admit 1", "chat m 1", "keys select 1", "fifo admit 1", "fifo release 1")
			if tr := spans.trace(unsampled); len(tr) > 0 {
				t.Errorf("exported %v", tr)
			}
			if got := up.expect(t, 2)[0].Header.Get("Traceparent"); !strings.HasPrefix(got, "00-"+unsampled+"-") || !strings.HasSuffix(got, "-00") {
				t.Errorf("the provider got Traceparent %q, want the trace, unsampled", got)
			}
		})
	}
}

func TestInvalidTraceIsANewOne_B135(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	for name, parent := range map[string]string{
		"none":       "",
		"zero":       "00-00000000000000000000000000000000-" + callerSpan + "-01",
		"version":    "ff-" + newTraceID() + "-" + callerSpan + "-01",
		"upper case": "00-" + strings.ToUpper(newTraceID()) + "-" + callerSpan + "-01",
		"no sense":   "x",
	} {
		t.Run(name, func(t *testing.T) {
			r := st.ask(chatBody, http.StatusOK, header("Traceparent", parent))
			eventually(t, func() error {
				s := spans.ofRequest(r.id())
				if s == nil {
					return fmt.Errorf("no span of request %s", r.id())
				}
				if len(s.GetParentSpanId()) != 0 {
					t.Errorf("%s is below %x", s, s.GetParentSpanId())
				}
				return nil
			})
		})
	}
}

func TestPromptsAreInNoSpan_B136(t *testing.T) {
	const marker = "MARKER-OF-A-PROMPT"
	up := newUpstream(t, limited(), answers(http.StatusOK, strings.Replace(chatAnswer, "Hi", marker, 1)))
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)) + inOrder + model(up)})
	id := newTraceID()
	r := st.ask(strings.Replace(chatBody, "Hello", marker, 1), http.StatusOK, inTrace(id), header("X-Any", marker))
	tr := spans.await(t, id, serverSpan+" 1", "usher.select 1", "usher.admit 2", "chat m 2", "keys select 1", "fifo admit 2", "fifo release 2")
	var shown strings.Builder
	shown.WriteString(string(st.adminGet("/usher/decisions/"+r.id(), http.StatusOK)))
	for _, s := range tr {
		shown.WriteString(s.Span.String())
	}
	if strings.Contains(shown.String(), marker) {
		t.Errorf("the prompt is shown: %s", shown.String())
	}
}

// What callers make up must not become names.
func TestNamesOfSpansAreBounded_B138(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.provider() + model(up)})
	id := newTraceID()
	for i := range 5 {
		st.do(http.MethodPost, chatPath, fmt.Sprintf(`{"model":"made-up-%d"}`, i), inTrace(id))
	}
	for _, s := range spans.await(t, id, serverSpan+" 5") {
		if strings.Contains(s.Span.String(), "made-up") {
			t.Errorf("%s has a model that does not exist", s)
		}
		s.expectAttrs(t, map[string]string{"usher.disposition": "client_fault", "usher.refusal": "model_not_found", "http.response.status_code": "404"})
	}
}

func TestTelemetryCanBeTurnedOff(t *testing.T) {
	up := newUpstream(t, chats())
	off, on := newTraceID(), newTraceID()
	for id, value := range map[string]string{off: "off", on: "on"} {
		t.Run(value, func(t *testing.T) {
			global := map[string]string{off: "usher {\ntelemetry off\n}"}[id]
			st := serve(t, setup{global: global, usher: up.provider() + model(up)})
			st.ask(chatBody, http.StatusOK, inTrace(id))
			st.await(0, 0)
			if id == on {
				spans.await(t, on, serverSpan+" 1", "usher.select 1", "usher.admit 1", "chat m 1", "keys select 1", "fifo admit 1", "fifo release 1")
			}
		})
	}
	if tr := spans.trace(off); len(tr) > 0 {
		t.Errorf("exported %v", tr)
	}
}
