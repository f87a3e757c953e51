package caddymodule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/policy"
)

func TestPolicyThatFailsClosesOrOpensTheSite(t *testing.T) {
	for _, name := range []string{"failing", "panicking", "slow"} {
		for _, c := range []struct{ kind, other string }{{"select", "admit none"}, {"admit", "select none"}, {"admit", ""}, {"select", ""}} {
			if name == "slow" && c.kind == "admit" {
				continue // to be slow is to let requests wait
			}
			for mode, status := range map[string]int{"closed": http.StatusServiceUnavailable, "open": http.StatusOK} {
				t.Run(fmt.Sprintf("%s %s %s %s", c.kind, name, mode, c.other), func(t *testing.T) {
					up := newUpstream(t, chats())
					st := serve(t, setup{
						global: plugins(t, "", name),
						usher: fmt.Sprintf("%s%s%s %s {\non_error %s\ntimeout 300ms\n}\n%s\n",
							up.provider(), model(up), c.kind, name, mode, c.other),
					})
					r := st.ask(chatBody, status)
					if status == http.StatusServiceUnavailable && r.Header.Get("X-Usher-Reason") != "plugin_unavailable" {
						t.Errorf("X-Usher-Reason %q, want plugin_unavailable", r.Header.Get("X-Usher-Reason"))
					}
					d := st.decision(r.id())
					var told strings.Builder
					for _, s := range d.Selections {
						told.WriteString(s.Error)
					}
					for _, a := range d.Admissions {
						told.WriteString(a.Error)
					}
					if told.String() == "" {
						t.Errorf("decision %+v does not tell the failure", d)
					}
				})
			}
		}
	}
}

// A policy that is out of order must not fill the log.
func TestFailuresOfAPolicyAreLoggedOnceASecond(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		global: plugins(t, "", "failing"),
		usher:  up.provider() + model(up) + "select failing {\non_error open\n}\n",
	})
	began := time.Now()
	const requests = 20
	for range requests {
		st.ask(chatBody, http.StatusOK)
	}
	most := 2 + int(time.Since(began).Seconds())
	if n := strings.Count(st.log(), `"msg":"policy failed"`); n == 0 || n > most {
		t.Errorf("%d lines of log for %d failures, want 1 to %d", n, requests, most)
	}
}

func TestSelectionPoliciesFormAChain(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		global: plugins(t, "", "picky", "backwards"),
		usher: up.providerOf(key(1)+key(2)+key(3)) + model(up) +
			"select picky\nselect keys {\norder priority\n}\nselect backwards\n",
	})
	r := st.ask(chatBody, http.StatusOK)
	var got []string
	for _, s := range st.decision(r.id()).Selections {
		for _, v := range s.Verdicts {
			got = append(got, fmt.Sprintf("%s %s %s", s.Policy, strings.Split(v.Candidate, "/")[1], v.Verdict))
		}
	}
	want := []string{
		"picky k2 eligible", "picky k3 eligible", "picky k1 skipped", // ranked ones first
		"keys k2 eligible", "keys k3 eligible",
		"backwards k3 eligible", "backwards k2 eligible",
	}
	if diff := cmp.Diff(want, sortedVerdicts(got, want)); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if got := r.Header.Get("X-Usher-Candidate"); got != up.name+"/k3/m" {
		t.Errorf("served by %q, want k3: the last order wins", got)
	}
}

// sortedVerdicts puts the verdicts of the policy picky into the order of want:
// the order of skipped ones means nothing.
func sortedVerdicts(got, want []string) []string {
	if len(got) == len(want) && got[0] == want[2] {
		return append([]string{got[1], got[2], got[0]}, got[3:]...)
	}
	return got
}

func TestNobodyLeftTellsTheFirstInstantOfAll(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{
		global: plugins(t, "", "picky"),
		usher:  up.provider() + model(up) + "select picky\n",
	})
	r := st.do(http.MethodPost, chatPath, chatBody)
	r.expectRetryAfter(t, 20)
	if got := r.Header.Get("X-Usher-Reason"); got != "policy" {
		t.Errorf("X-Usher-Reason %q, want policy", got)
	}
	v := st.decision(r.id()).Selections[0].Verdicts[0]
	if v.Detail != "not the first" || v.Observed != 1 || v.Limit != 2 || v.Until == nil {
		t.Errorf("verdict %+v, want its detail, numbers and instant", v)
	}
	up.expect(t, 0)
}

func TestAllAdmissionPoliciesMustAdmitAndHearOfTheEnd(t *testing.T) {
	up := newUpstream(t, limited("Retry-After", "7"), chats())
	st := serve(t, setup{
		global: plugins(t, "", "doorman"),
		usher:  up.providerOf(key(1)+key(2)) + inOrder + model(up) + "admit doorman\nadmit fifo\n",
	})
	r := st.ask(chatBody, http.StatusOK)
	st.expectDoorman(doormanLine{r.id(), 1, "rate_limited", true}, doormanLine{r.id(), 2, "ok", true})
	var admitted []string
	for _, a := range st.decision(r.id()).Admissions {
		admitted = append(admitted, a.Policy)
	}
	if got := strings.Join(admitted, " "); got != "doorman fifo doorman fifo" {
		t.Errorf("admissions %s, want doorman fifo doorman fifo", got)
	}
}

// doormanLine is what the policy doorman logs of the end of a lease.
type doormanLine struct {
	Request     string `json:"request"`
	Attempt     int    `json:"attempt"`
	Disposition string `json:"disposition"`
	UsageKnown  bool   `json:"usage_known"`
}

// expectDoorman waits until the doorman has heard of these ends and no others.
func (st *site) expectDoorman(want ...doormanLine) {
	st.t.Helper()
	eventually(st.t, func() error {
		var got []doormanLine
		for line := range strings.Lines(st.log()) {
			if !strings.Contains(line, "the doorman hears") {
				continue
			}
			var l doormanLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return err
			}
			got = append(got, l)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("what the doorman heard (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestRefusalAfterALeaseGivesItBack(t *testing.T) {
	for name, c := range map[string]struct{ second, reason string }{
		"rejected": {"admit rejecting", "policy"},
		"failed":   {"admit failing", "plugin_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{
				global: plugins(t, "", "doorman", "rejecting", "failing"),
				usher:  up.provider() + model(up) + "admit doorman\n" + c.second + "\n",
			})
			r := st.do(http.MethodPost, chatPath, chatBody)
			if got := r.Header.Get("X-Usher-Reason"); got != c.reason {
				t.Errorf("X-Usher-Reason %q, want %q", got, c.reason)
			}
			if c.reason == "policy" {
				r.expectRetryAfter(t, 7)
			}
			st.expectDoorman(doormanLine{r.id(), 1, "denied", true})
			up.expect(t, 0)
		})
	}
}

func TestOnlyTheLastAdmissionPolicyMayLetARequestWait(t *testing.T) {
	for mode, status := range map[string]int{"closed": http.StatusServiceUnavailable, "open": http.StatusOK} {
		t.Run(mode, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{
				global: plugins(t, "", "dawdling"),
				usher:  up.provider() + model(up) + "admit dawdling {\non_error " + mode + "\n}\nadmit fifo\n",
			})
			r := st.ask(chatBody, status)
			if a := st.decision(r.id()).Admissions[0]; !strings.Contains(a.Error, "another policy follows") {
				t.Errorf("admission %+v, want the error", a)
			}
		})
	}
}

// A plugin sees of a request what it was granted.
func TestPluginsSeeWhatTheyWereGranted(t *testing.T) {
	for lines, want := range map[string]string{
		"":                              `headers [] body ""`,
		"grant headers x-team X-Absent": `headers ["X-Team"] body ""`,
		"grant body":                    fmt.Sprintf("headers [] body %q", chatBody),
	} {
		t.Run(lines, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{
				global: plugins(t, lines, "curious"),
				usher:  up.provider() + model(up) + "select curious\n",
			})
			r := st.ask(chatBody, http.StatusServiceUnavailable, header("X-Team", "blue"), bearer(secret3), header("Cookie", "a=b"))
			if got := st.decision(r.id()).Selections[0].Verdicts[0].Detail; got != want {
				t.Errorf("the policy saw %s, want %s", got, want)
			}
		})
	}
}

func TestPolicyOfTheWrongKindIsFoundAtTheStart(t *testing.T) {
	up := newUpstream(t, chats())
	for use, want := range map[string]string{
		"admit picky":    "does not admit; write: select picky",
		"select doorman": "does not select; write: admit doorman",
	} {
		t.Run(use, func(t *testing.T) {
			st := serve(t, setup{usher: up.provider() + model(up)})
			err := st.load(setup{global: plugins(t, "", "picky", "doorman"), usher: up.provider() + model(up) + use + "\n"})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Load = %v, want %q", err, want)
			}
			eventually(t, func() error { // the old configuration goes on; its server may reset a connection
				r, err := st.send(http.MethodPost, chatPath, chatBody)
				if err == nil && r.StatusCode != http.StatusOK {
					err = errors.New(r.Status)
				}
				return err
			})
		})
	}
}

func TestVerdictsOfPoliciesReachTheRecordInOrder(t *testing.T) {
	up := newUpstream(t, chats())
	st := serve(t, setup{usher: up.providerOf(key(1, "disabled")+key(2)) + inOrder + model(up)})
	r := st.ask(chatBody, http.StatusOK)
	verdicts := st.decision(r.id()).Selections[0].Verdicts
	if len(verdicts) != 2 || verdicts[0].Verdict != policy.Eligible || verdicts[1].Reason != policy.ReasonDisabled {
		t.Errorf("verdicts %+v, want k2 eligible and k1 disabled", verdicts)
	}
}

// A plugin's process outlives reloads; what it logs goes where the running
// configuration says.
func TestLogOfAPluginFollowsTheConfiguration(t *testing.T) {
	for _, configuration := range []string{"first", "second"} { // in the same process
		t.Run(configuration, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{
				global: plugins(t, "", "doorman"),
				usher:  up.provider() + model(up) + "admit doorman\n",
			})
			r := st.ask(chatBody, http.StatusOK)
			st.expectDoorman(doormanLine{r.id(), 1, "ok", true})
		})
	}
}

func TestCandidatesThatAPolicyForgetsAreNotRanked(t *testing.T) {
	up := newUpstream(t, breaks())
	st := serve(t, setup{
		global: plugins(t, "", "forgetful"),
		usher:  up.providerOf(key(1)+key(2)) + model(up) + "select forgetful\n",
	})
	r := st.ask(chatBody, http.StatusInternalServerError)
	st.expectAttempts(r, "k1 500 upstream_error")
	verdicts := st.decision(r.id()).Selections[0].Verdicts
	if len(verdicts) != 2 || verdicts[1].Candidate != up.name+"/k2/m" || verdicts[1].Reason != policy.ReasonNotRanked {
		t.Errorf("verdicts %+v, want k2 not ranked", verdicts)
	}
}

// The policy careless selects and admits keys that are out of service.
func TestNoPolicyCanUseAKeyThatIsOutOfService(t *testing.T) {
	for name, c := range map[string]struct {
		keys, mode string
		status     int
		reason     string
		heard      doormanLine
	}{
		"nobody else":         {key(1, "disabled"), "closed", 503, "no_candidate", doormanLine{"", 1, "client_gone", false}},
		"another, closed":     {key(1) + key(2, "disabled"), "closed", 503, "plugin_unavailable", doormanLine{"", 1, "denied", true}},
		"another, open":       {key(1) + key(2, "disabled"), "open", 200, "", doormanLine{"", 1, "ok", true}},
		"another comes first": {key(1, "disabled") + key(2), "closed", 200, "", doormanLine{"", 1, "ok", true}},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, chats())
			st := serve(t, setup{
				global: plugins(t, "", "careless"),
				usher:  up.providerOf(c.keys) + model(up) + "select careless\nadmit careless {\non_error " + c.mode + "\n}\n",
			})
			r := st.ask(chatBody, c.status)
			if got := r.Header.Get("X-Usher-Reason"); got != c.reason {
				t.Errorf("X-Usher-Reason %q, want %q", got, c.reason)
			}
			c.heard.Request = r.id()
			st.expectDoorman(c.heard)
			for _, h := range up.seen() {
				if h.Header.Get("Authorization") == "" {
					t.Error("a request went out without a key")
				}
			}
		})
	}
}

func TestPolicyThatDoesNotTakeALeaseBackEndsFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	up := newUpstream(t, breaks())
	st := serve(t, setup{
		global: plugins(t, "", "clinging"),
		usher:  up.providerOf(key(1)+key(2)) + inOrder + model(up) + "admit clinging\n",
	})
	r := st.ask(chatBody, http.StatusServiceUnavailable)
	if got := r.Header.Get("X-Usher-Reason"); got != "plugin_unavailable" {
		t.Errorf("X-Usher-Reason %q, want plugin_unavailable", got)
	}
	st.expectAttempts(r, "k1 500 upstream_error")
}
