package sdk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
	"github.com/usherproxy/usher/sdk/policytest"
)

// selectFunc is a selection policy.
type selectFunc func(context.Context, *policy.SelectRequest) (policy.Selection, error)

func (f selectFunc) Select(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
	return f(ctx, req)
}

var residency = policy.Why{Reason: policy.ReasonPolicy, Detail: "residency", Until: time.Unix(1_800_000_000, 0).UTC()}

// skipB skips b and turns the order of the others round.
func skipB(_ context.Context, req *policy.SelectRequest) (s policy.Selection, err error) {
	for _, c := range slices.Backward(req.Candidates) {
		if c.ID == "b" {
			s.Skip(c, residency)
		} else {
			s.Add(c)
		}
	}
	return s, nil
}

func TestDecideAsksAChain(t *testing.T) {
	t.Parallel()
	busy := policy.Why{Reason: policy.ReasonKeyConcurrency, Observed: 2, Limit: 2}
	d := newDesk()
	second := make(chan *policy.SelectRequest, 1)
	l := connect(t, map[string]sdk.Policies{
		"first": {Selection: selectFunc(skipB)},
		"second": {Selection: selectFunc(func(_ context.Context, req *policy.SelectRequest) (s policy.Selection, err error) {
			asked := *req
			second <- &asked
			s.Busy(req.Candidates[0], busy)
			s.Add(req.Candidates[1])
			return s, nil
		})},
		"desk": {Admission: d},
	})
	earlier := policy.Verdict{Candidate: "a", Status: policy.Eligible}
	decision := async(func() *host.Decision {
		return l.decide(&host.DecideRequest{
			Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates,
			Verdicts: []policy.Verdict{earlier}, Select: []string{"first", "second"}, Admit: "desk", Attempt: 1,
		})
	})
	v := d.next(t)
	v.admits(1)
	got := receive(t, decision, "decision")

	verdicts := []policy.Verdict{
		{Candidate: "c", Status: policy.Eligible},
		{Candidate: "b", Status: policy.Skipped, Why: residency},
		{Candidate: "a", Status: policy.Eligible},
	}
	left := []policy.Candidate{{ID: "c"}, {ID: "a"}}
	want := &policy.SelectRequest{Request: &policy.Request{ID: "r1"}, Candidates: left, Verdicts: append([]policy.Verdict{earlier}, verdicts...)}
	if diff := cmp.Diff(want, receive(t, second, "second")); diff != "" {
		t.Errorf("the second policy was asked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(left, v.req.Candidates); diff != "" {
		t.Errorf("the admission policy was offered (-want +got):\n%s", diff)
	}
	if len(got.Selections) != 2 || got.Selections[0].Duration <= 0 {
		t.Fatalf("selections are %+v, want two with a duration", got.Selections)
	}
	if diff := cmp.Diff(verdicts, got.Selections[0].Verdicts); diff != "" {
		t.Errorf("the first verdicts (-want +got):\n%s", diff)
	}
	wantSecond := []policy.Verdict{{Candidate: "c", Status: policy.Busy, Why: busy}, {Candidate: "a", Status: policy.Eligible}}
	if diff := cmp.Diff(wantSecond, got.Selections[1].Verdicts); diff != "" {
		t.Errorf("the second verdicts (-want +got):\n%s", diff)
	}
	a := l.settled(got, &host.AdmitRequest{
		Instance: "desk", Request: &policy.Request{ID: "r1"}, Attempt: 1, Catalog: l.catalog, Candidates: left,
	})
	if a == nil || a.Candidate != "a" {
		t.Errorf("admission is %+v, want a lease on a", a)
	}
}

func TestDecideAsksNoAdmissionWithoutCandidates(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := connect(t, map[string]sdk.Policies{
		"none": {Selection: selectFunc(func(context.Context, *policy.SelectRequest) (policy.Selection, error) {
			return policy.Selection{}, nil
		})},
		"desk": {Admission: d},
	})
	got := l.decide(&host.DecideRequest{
		Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates,
		Select: []string{"none"}, Admit: "desk", Attempt: 1,
	})
	if got.Admission != nil || len(got.Selections) != 1 {
		t.Errorf("decision is %+v, want one selection and no admission", got)
	}
	d.noMore(t)
}

// The host's Cancel may come before the admission that it is meant for.
func TestDecideAdmitsNobodyWhoHasLeft(t *testing.T) {
	t.Parallel()
	d := newDesk()
	selecting, goOn := make(chan struct{}), make(chan struct{})
	l := connect(t, map[string]sdk.Policies{
		"slow": {Selection: selectFunc(func(ctx context.Context, req *policy.SelectRequest) (policy.Selection, error) {
			close(selecting)
			<-goOn
			return skipB(ctx, req)
		})},
		"desk": {Admission: d},
	})
	ctx, leave := context.WithCancel(t.Context())
	call := async(func() error {
		_, err := l.Decide(ctx, &host.DecideRequest{
			Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates,
			Select: []string{"slow"}, Admit: "desk", Attempt: 1,
		})
		return err
	})
	receive(t, selecting, "select")
	leave()
	if err := receive(t, call, "the ended call"); err == nil {
		t.Error("a call that was ended returned an answer")
	}
	l.cancel(host.Ticket{ID: "r1", Attempt: 1})
	close(goOn)
	select {
	case <-d.visits:
		t.Error("asked for the admission of a request whose caller has left")
	case <-time.After(50 * time.Millisecond): // nothing tells that nothing happens
	}
}

func TestWrongSelectionsAreErrorsAndEndTheChain(t *testing.T) {
	t.Parallel()
	a, x := policy.Candidate{ID: "a"}, policy.Candidate{ID: "x"}
	for name, c := range map[string]struct {
		answer func(*policy.Selection) error
		want   string
	}{
		"not offered": {func(s *policy.Selection) error { s.Add(policy.Candidate{ID: "c"}); return nil }, "not offered"},
		"unknown":     {func(s *policy.Selection) error { s.Add(x); return nil }, "not offered"},
		"twice":       {func(s *policy.Selection) error { s.Add(a); s.Add(a); return nil }, "two verdicts"},
		"no reason":   {func(s *policy.Selection) error { s.Skip(a, policy.Why{Reason: "mood"}); return nil }, "unknown reason"},
		"error":       {func(*policy.Selection) error { return errors.New("no caf\xe9") }, "no caf\uFFFD"},
		"panic":       {func(*policy.Selection) error { panic("oh") }, "policy panicked: oh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk()
			l := connect(t, map[string]sdk.Policies{
				"wrong": {Selection: selectFunc(func(context.Context, *policy.SelectRequest) (s policy.Selection, err error) {
					err = c.answer(&s)
					return s, err
				})},
				"right": {Selection: selectFunc(skipB)},
				"desk":  {Admission: d},
			})
			got := l.decide(&host.DecideRequest{
				Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates[:2],
				Select: []string{"wrong", "right"}, Admit: "desk", Attempt: 1,
			})
			if len(got.Selections) != 1 || got.Admission != nil {
				t.Fatalf("decision is %+v, want one selection and no admission", got)
			}
			if err := got.Selections[0].Err; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %s", err, c.want)
			}
			if v := got.Selections[0].Verdicts; len(v) > 0 {
				t.Errorf("verdicts next to an error: %v", v)
			}
			d.noMore(t)
		})
	}
}

func TestUnknownInstancesAndCatalogsAreTold(t *testing.T) {
	t.Parallel()
	l := connect(t, map[string]sdk.Policies{
		"desk": {Admission: newDesk()}, "selects": {Selection: selectFunc(skipB)},
	})
	unsent, err := host.NewCatalog([]policy.Candidate{{ID: "a"}, {ID: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(edit func(*host.DecideRequest)) error {
		req := &host.DecideRequest{Request: &policy.Request{ID: "r1"}, Catalog: l.catalog, Candidates: l.catalog.Candidates[:2], Attempt: 1}
		edit(req)
		_, err := l.Decide(t.Context(), req)
		return err
	}
	for name, err := range map[string]error{
		"selection":              ask(func(r *host.DecideRequest) { r.Select = []string{"nobody"} }),
		"selection of admission": ask(func(r *host.DecideRequest) { r.Select = []string{"desk"} }),
		"admission":              ask(func(r *host.DecideRequest) { r.Admit = "nobody" }),
		"admission of selection": ask(func(r *host.DecideRequest) { r.Admit = "selects" }),
		"catalog":                ask(func(r *host.DecideRequest) { r.Select, r.Catalog = []string{"selects"}, unsent }),
		"restore":                l.Restore(t.Context(), "nobody", nil, nil),
		"observe": l.Observe(t.Context(), []host.Observation{
			{Instances: []string{"selects"}, Catalog: unsent, Result: policy.AttemptResult{Candidate: policy.Candidate{ID: "a"}}},
		}),
	} {
		if !host.Unknown(err) {
			t.Errorf("%s: %v, want an unknown instance or catalog", name, err)
		}
	}
	if err := l.SyncCatalog(t.Context(), nil, l.catalog.Name); err != nil {
		t.Fatal(err)
	}
	if err := ask(func(r *host.DecideRequest) { r.Select = []string{"selects"} }); !host.Unknown(err) {
		t.Errorf("a forgotten catalog: %v, want an unknown catalog", err)
	}
	if err := l.Cancel(t.Context(), "nobody", host.Ticket{ID: "r1", Attempt: 1}); err != nil {
		t.Errorf("cancel at an unknown instance: %v, want nothing to do", err)
	}
}

func TestConfigureTellsWhatAnInstanceOffers(t *testing.T) {
	t.Parallel()
	l := connect(t, map[string]sdk.Policies{})
	_ = l
	for name, c := range map[string]struct {
		policies sdk.Policies
		want     host.Kinds
	}{
		"selection": {sdk.Policies{Selection: selectFunc(skipB)}, host.Kinds{Selection: true}},
		"admission": {sdk.Policies{Admission: newDesk()}, host.Kinds{Admission: true}},
		"restorer":  {sdk.Policies{Admission: &restorableDesk{}}, host.Kinds{Admission: true, Restorer: true}},
		"observer":  {sdk.Policies{Observer: observeFunc(nil)}, host.Kinds{Observer: true}},
		"operable":  {sdk.Policies{Selection: ledger{}}, host.Kinds{Selection: true, Operable: true}},
		"operator":  {sdk.Policies{Selection: selectFunc(skipB), Operable: ledger{}}, host.Kinds{Selection: true, Operable: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := policytest.Connect(t, define(name, c.policies))
			for range 2 { // the second time, it exists already
				got, err := client.Configure(t.Context(), "i", name, nil)
				if err != nil || got != c.want {
					t.Errorf("kinds are %+v (%v), want %+v", got, err, c.want)
				}
			}
		})
	}
}

func TestConfigureRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	builds := 0
	client := policytest.Connect(t, sdk.Define("picky", config{}, func(context.Context, config) (sdk.Policies, error) {
		if builds++; builds == 1 {
			panic("first build")
		}
		return sdk.Policies{Selection: selectFunc(skipB)}, nil
	}))
	_, err := client.Configure(t.Context(), "i", "picky", []byte(`{"max": "x"}`))
	refused, ok := errors.AsType[*host.ConfigError](err)
	if !ok || refused.Error() != "policy picky: max: wants a whole number, not a string" {
		t.Errorf("configure: %v, want the option max to be refused", err)
	}
	if _, err := client.Configure(t.Context(), "i", "picky", nil); err == nil || !strings.Contains(err.Error(), "first build") {
		t.Errorf("configure: %v, want the panic", err)
	}
	if _, err := client.Configure(t.Context(), "i", "picky", nil); err != nil {
		t.Errorf("configure after a failure: %v", err)
	}
	ds, err := client.ValidateConfig(t.Context(), "picky", []byte(`{"max": -1}`))
	if want := []sdk.Diagnostic{{Option: "max", Message: "must not be negative, is -1"}}; err != nil || !slices.Equal(ds, want) {
		t.Errorf("validate: %v (%v), want %v", ds, err, want)
	}
	if _, err := client.ValidateConfig(t.Context(), "nobody", nil); err == nil || host.Unknown(err) {
		t.Errorf("validate for an unknown policy: %v, want an error", err)
	}
	if _, err := client.Configure(t.Context(), "i2", "nobody", nil); err == nil || host.Unknown(err) {
		t.Errorf("configure an unknown policy: %v, want an error", err)
	}
}

// A build may take long. Requests to other instances go on meanwhile.
func TestConfigureDoesNotHoldUpRequests(t *testing.T) {
	t.Parallel()
	building, goOn := make(chan struct{}), make(chan struct{})
	slow := sdk.Define("slow", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		close(building)
		<-goOn
		return sdk.Policies{Selection: selectFunc(skipB)}, nil
	})
	client := policytest.Connect(t, slow, define("fast", sdk.Policies{Selection: selectFunc(skipB)}))
	kinds, err := client.Configure(t.Context(), "fast", "fast", nil)
	if err != nil {
		t.Fatal(err)
	}
	configured := async(func() error {
		_, err := client.Configure(t.Context(), "slow", "slow", nil)
		return err
	})
	receive(t, building, "build")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = client.Instance("fast", kinds).Selection.Select(ctx, &policy.SelectRequest{
		Request: &policy.Request{ID: "r1"}, Candidates: []policy.Candidate{{ID: "a"}},
	})
	if err != nil {
		t.Errorf("select while another instance is built: %v", err)
	}
	close(goOn)
	if err := receive(t, configured, "configure"); err != nil {
		t.Error(err)
	}
}

func TestInfoNamesThePolicies(t *testing.T) {
	t.Parallel()
	client := policytest.Connect(t, define("one", sdk.Policies{}), define("two", sdk.Policies{}))
	info, err := client.Info(t.Context(), "v1.2.3")
	if err != nil || !slices.Equal(info.Policies, []string{"one", "two"}) || info.Name == "" || info.Version == "" {
		t.Errorf("info is %+v (%v)", info, err)
	}
}
