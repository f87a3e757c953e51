package caddymodule_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/usherproxy/usher/policy"
)

// A request whose lease is revoked ends, with the reason and in its own format.
func TestRevokedRequestsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		answer func(*gate) http.HandlerFunc
		status int
	}{
		"before the answer": {chatBody, func(g *gate) http.HandlerFunc { return g.then(chats()) }, http.StatusServiceUnavailable},
		"in a stream":       {streamBody, func(g *gate) http.HandlerFunc { return g.flows(content, streamAnswer) }, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			up := newUpstream(t, c.answer(g), chats())
			st := serve(t, setup{global: plugins(t, "", "revoking"), usher: up.provider() + model(up) + "admit revoking\n"})
			var revoked *reply
			done := make(chan struct{})
			go func() {
				defer close(done)
				revoked, _ = st.send(http.MethodPost, chatPath, c.body) // a stream ends with an error of the connection, too
			}()
			after(t, g.arrived, "the request")
			st.ask(chatBody, http.StatusOK) // which is what revokes the other
			after(t, done, "the end")
			after(t, g.left, "the end at the provider")
			if revoked == nil || revoked.StatusCode != c.status || !strings.Contains(revoked.body, "store_unavailable") {
				t.Fatalf("reply %+v, want status %d that tells store_unavailable", revoked, c.status)
			}
			d := st.decision(revoked.id())
			if d.Disposition != policy.Denied || d.Refusal != "store_unavailable" || d.Status != c.status {
				t.Errorf("decision %+v, want one denied for store_unavailable", d)
			}
			if len(d.Attempts) != 1 || d.Attempts[0].Disposition != policy.Denied {
				t.Errorf("attempts %+v, want one that says nothing of the candidate", d.Attempts)
			}
		})
	}
}
