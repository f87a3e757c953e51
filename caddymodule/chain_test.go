package caddymodule_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/caddymodule"
	"github.com/usherproxy/usher/policy"
)

func TestPoliciesOfOneProcessAreAskedInOneRoundTrip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		selects []string
		admit   string
		want    [][]string
	}{
		"defaults":         {[]string{"b/keys"}, "b/fifo", [][]string{{"b/keys", "admit b/fifo"}}},
		"two processes":    {[]string{"x/x"}, "b/fifo", [][]string{{"x/x"}, {"admit b/fifo"}}},
		"a third before":   {[]string{"x/x", "b/keys"}, "b/fifo", [][]string{{"x/x"}, {"b/keys", "admit b/fifo"}}},
		"a third between":  {[]string{"b/keys", "x/x"}, "b/fifo", [][]string{{"b/keys"}, {"x/x"}, {"admit b/fifo"}}},
		"one twice":        {[]string{"x/1", "x/2", "b/keys"}, "x/3", [][]string{{"x/1", "x/2"}, {"b/keys"}, {"admit x/3"}}},
		"selection alone":  {[]string{"b/keys"}, "", [][]string{{"b/keys"}}},
		"admission alone":  {nil, "b/fifo", [][]string{{"admit b/fifo"}}},
		"no policy at all": {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, caddymodule.Steps(c.selects, c.admit)); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyNamesTheFirstInstant(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	skip := func(reason policy.Reason, in time.Duration) policy.Verdict {
		v := policy.Verdict{Status: policy.Skipped, Why: policy.Why{Reason: reason}}
		if in != 0 {
			v.Until = now.Add(in)
		}
		return v
	}
	for name, c := range map[string]struct {
		verdicts []policy.Verdict
		code     string
		after    time.Duration
	}{
		"no verdicts":  {nil, "no_candidate", 0},
		"no instants":  {[]policy.Verdict{skip(policy.ReasonDisabled, 0)}, "no_candidate", 0},
		"the soonest":  {[]policy.Verdict{skip(policy.ReasonAccountQuota, time.Hour), skip(policy.ReasonCooldown, time.Second), skip(policy.ReasonDisabled, 0)}, "cooldown", time.Second},
		"one has past": {[]policy.Verdict{skip(policy.ReasonCooldown, -time.Second), skip(policy.ReasonCircuitOpen, time.Minute)}, "circuit_open", time.Minute},
		"busy ones":    {[]policy.Verdict{{Status: policy.Busy, Why: policy.Why{Reason: policy.ReasonKeyRequests, Until: now.Add(time.Second)}}}, "no_candidate", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := caddymodule.Nobody(c.verdicts, now)
			if got.Code != c.code || got.RetryAfter != c.after {
				t.Errorf("%s after %s, want %s after %s", got.Code, got.RetryAfter, c.code, c.after)
			}
		})
	}
}

func TestPriorityIsAtMostThatOfTheCaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked      string
		most, want int
	}{
		{"", 5, 5},
		{"3", 5, 3},
		{"9", 5, 5},
		{"-7", 5, -7},
		{"0", -1, -1},
		{"high", 5, 5},
		{" 3", 5, 5},
		{"3.0", 5, 5},
		{"99999999999999999999", 5, 5},
		{"-99999999999999999999", 5, 5},
		{strconv.Itoa(math.MinInt), 0, math.MinInt},
	} {
		if got := caddymodule.Priority(c.asked, c.most); got != c.want {
			t.Errorf("Priority(%q, %d) = %d, want %d", c.asked, c.most, got, c.want)
		}
	}
}

func TestJoinPathDoesNotRepeatTheVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ base, path, want string }{
		{"", "/v1/x", "/v1/x"},
		{"/", "/v1/x", "/v1/x"},
		{"/v1", "/v1/x", "/v1/x"},
		{"/v1/", "/v1/x", "/v1/x"},
		{"/a/v1", "/v1/x", "/a/v1/x"},
		{"/a", "/v1/x", "/a/v1/x"},
		{"/av1", "/v1/x", "/av1/v1/x"},
		{"/v1", "/v1beta/x", "/v1/v1beta/x"},
		{"/v1/a", "/v1/x", "/v1/a/v1/x"},
	} {
		if got := caddymodule.JoinPath(c.base, c.path); got != c.want {
			t.Errorf("JoinPath(%q, %q) = %q, want %q", c.base, c.path, got, c.want)
		}
	}
}
