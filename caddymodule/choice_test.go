package caddymodule_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A session leaves a key whose quota is used up, and does not ask it again.
func TestSessionLeavesAKeyWithoutQuota_B67(t *testing.T) {
	var spent atomic.Value // the credential whose quota is
	spent.Store("")
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == spent.Load() {
			answers(http.StatusTooManyRequests, failure("insufficient_quota", "insufficient_quota"))(w, r)
			return
		}
		chats()(w, r)
	})
	st := serve(t, setup{usher: up.providerOf(key(1)+key(2)+key(3)) + model(up)})
	const session = `{"model":"m","prompt_cache_key":"session 1"}`
	home := st.ask(session, http.StatusOK).Header.Get("X-Usher-Candidate")
	for range 5 {
		if got := st.ask(session, http.StatusOK).Header.Get("X-Usher-Candidate"); got != home {
			t.Errorf("the session went from %s to %s", home, got)
		}
	}
	spent.Store(up.seen()[0].Header.Get("Authorization"))
	name := strings.Split(home, "/")[1]
	if got := attempts(st.decision(st.ask(session, http.StatusOK).id())); len(got) != 2 || got[0] != name+" 429 quota_exhausted" {
		t.Errorf("attempts %q, want one at %s and one elsewhere", got, name)
	}
	st.await(0, 0) // the policies know
	for range 5 {
		r := st.ask(session, http.StatusOK)
		if got := attempts(st.decision(r.id())); len(got) != 1 || r.Header.Get("X-Usher-Candidate") == home {
			t.Errorf("attempts %q, want one elsewhere than at %s", got, name)
		}
	}
}

// Weights and priorities of the configuration are those that requests go by:
// a weight of 0 and a lower tier wait until no other can serve.
func TestWeightsOfTheConfigurationAreUsed_B69(t *testing.T) {
	up := newUpstream(t, chats())
	config := func(first, second string) setup {
		return setup{usher: up.providerOf(key(1, "weight 7", first)+key(2, "weight 0", second)+key(3, "priority 1")) + model(up)}
	}
	st := serve(t, config("", ""))
	for _, c := range []struct{ first, second, want string }{
		{"", "", "k1"}, {"disabled", "", "k2"}, {"disabled", "disabled", "k3"},
	} {
		if err := st.load(config(c.first, c.second)); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			r := st.ask(chatBody, http.StatusOK)
			if got := r.Header.Get("X-Usher-Candidate"); got != up.name+"/"+c.want+"/m" {
				t.Errorf("k1 %s, k2 %s: served by %s, want %s", c.first, c.second, got, c.want)
			}
		}
	}
}
