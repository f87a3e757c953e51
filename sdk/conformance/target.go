package conformance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/host"
)

// A Target is a policy behind a connection, and a configuration of it.
type Target struct {
	// Connect returns the connection to a process, or to what stands for one,
	// that serves the policy. It may return the same one each time.
	Connect func(t T) *host.Client

	// Policy is the name of the policy.
	Policy string

	// Config is a JSON object, or empty.
	Config string
}

// Build makes an instance of its own, which is closed when the check ends.
func (x Target) Build(t T) sdk.Policies {
	t.Helper()
	p, _ := x.instance(t, x.Connect(t))
	return p
}

// instance makes an instance in a process, and returns its name, too.
func (x Target) instance(t T, client *host.Client) (sdk.Policies, string) {
	t.Helper()
	name := x.Policy + "-" + rand.Text()[:8]
	return Configure(t, client, name, x.Policy, x.Config), name
}

// Configure makes an instance in a process. It is closed when the check ends,
// unless the check has done so.
func Configure(t T, client *host.Client, instance, policyName, config string) sdk.Policies {
	t.Helper()
	kinds, err := client.Configure(t.Context(), instance, policyName, json.RawMessage(config))
	if err != nil {
		t.Fatalf("configure policy %s: %v", policyName, err)
	}
	p := client.Instance(instance, kinds)
	CloseWith(t, &p)
	return p
}

// CloseWith closes p when the check ends, unless the check has done so.
func CloseWith(t T, p *sdk.Policies) {
	if p.Close == nil {
		return
	}
	var once sync.Once
	var err error
	closePolicies := p.Close
	p.Close = func(ctx context.Context) error {
		once.Do(func() { err = closePolicies(ctx) })
		return err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close instance: %v", err)
		}
	})
}

// Suites returns all suites that apply to the target, which offers what
// offered holds.
func (x Target) Suites(offered sdk.Policies) []Suite {
	suites := []Suite{{"configuration", x.configuration()}}
	if offered.Admission != nil {
		suites = append(suites, Suite{"protocol", x.protocol()})
	}
	return append(suites, Policies(offered, x.Build)...)
}

// configuration returns the checks of how a policy takes its configuration.
func (x Target) configuration() []Check {
	return []Check{
		{"the policy is named", x.isNamed},
		{"the configuration is right", x.isRight},
		{"an unknown option is an error that names it", x.namesUnknownOption},
		{"validation has no effect", x.validatesWithoutEffect},
		{"two instances live side by side", x.outlivesItsTwin},
		{"an instance is configured once", x.isConfiguredOnce},
		{"an instance that was drained is unknown", x.isUnknownAfterDrain},
		{"a large catalog is taken, and forgotten", x.takesLargeCatalogs},
	}
}

func (x Target) isNamed(t T) {
	info, err := x.Connect(t).Info(t.Context(), "conformance")
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	if info.Name == "" || !slices.Contains(info.Policies, x.Policy) {
		t.Errorf("GetInfo names the plugin %q and the policies %q, want a name, and %q among them", info.Name, info.Policies, x.Policy)
	}
}

func (x Target) isRight(t T) { x.validate(t, x.Connect(t), "") }

// validate checks that the configuration is right.
func (x Target) validate(t T, client *host.Client, when string) {
	t.Helper()
	ds, err := client.ValidateConfig(t.Context(), x.Policy, json.RawMessage(x.Config))
	if err != nil {
		t.Fatalf("validate%s: %v", when, err)
	}
	if len(ds) > 0 {
		t.Errorf("validate%s: %v", when, ds)
	}
}

func (x Target) namesUnknownOption(t T) {
	const name = "no_such_option_of_policytest"
	options := map[string]json.RawMessage{}
	if x.Config != "" {
		if err := json.Unmarshal([]byte(x.Config), &options); err != nil {
			t.Fatalf("config is not a JSON object: %v", err)
		}
	}
	options[name] = json.RawMessage(`true`)
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	client := x.Connect(t)
	names := func(ds []sdk.Diagnostic) bool {
		return slices.ContainsFunc(ds, func(d sdk.Diagnostic) bool { return d.Option == name })
	}
	if ds, err := client.ValidateConfig(t.Context(), x.Policy, raw); err != nil || !names(ds) {
		t.Errorf("validate %s: %v (%v); want an error about option %s", raw, ds, err, name)
	}
	_, err = client.Configure(t.Context(), x.Policy+"-"+rand.Text()[:8], x.Policy, raw)
	if e, ok := err.(*host.ConfigError); !ok || !names(e.Diagnostics) {
		t.Errorf("configure with %s: %v; want an error about option %s", raw, err, name)
	}
}

func (x Target) validatesWithoutEffect(t T) {
	client := x.Connect(t)
	for range 3 {
		x.validate(t, client, " again")
	}
	x.instance(t, client)
	x.validate(t, client, " next to an instance")
}

// outlivesItsTwin checks what happens in a reload: a new instance is there
// before the old one is closed, and goes on afterwards.
func (x Target) outlivesItsTwin(t T) {
	client := x.Connect(t)
	old, _ := x.instance(t, client)
	young, _ := x.instance(t, client)
	serves(t, old)
	serves(t, young)
	if err := old.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("close the old instance: %v", err)
	}
	serves(t, young)
}

// serves checks that p answers.
func serves(t T, p sdk.Policies) {
	t.Helper()
	if p.Admission != nil {
		admitsAndReleases(t, newRoom(t, p.Admission))
	}
	if p.Selection != nil {
		judge(t, p.Selection, newOffers(1).next(3))
	}
	if p.Observer != nil {
		p.Observer.Observe(t.Context(), results(newOffers(1))[0])
	}
	if p.Operable != nil {
		status(t, p.Operable)
	}
}

// isConfiguredOnce checks that a call whose answer was lost can be sent again.
func (x Target) isConfiguredOnce(t T) {
	client := x.Connect(t)
	p, name := x.instance(t, client)
	first := kindsOf(p)
	again, err := client.Configure(t.Context(), name, x.Policy, json.RawMessage(x.Config))
	if err != nil || again != first {
		t.Errorf("configured again, the instance takes part in %+v (%v), want %+v", again, err, first)
	}
	serves(t, p)
}

func kindsOf(p sdk.Policies) host.Kinds {
	_, restorer := p.Admission.(policy.Restorer)
	return host.Kinds{Selection: p.Selection != nil, Admission: p.Admission != nil, Observer: p.Observer != nil, Restorer: restorer, Operable: p.Operable != nil}
}

func (x Target) isUnknownAfterDrain(t T) {
	client := x.Connect(t)
	_, name := x.instance(t, client)
	for range 2 { // a lost answer is asked for again
		if err := client.Drain(t.Context(), name); err != nil {
			t.Fatalf("drain: %v", err)
		}
	}
	w := newWorld()
	candidates := newOffers(1).next(1).Candidates
	catalog := send(t, client, candidates)
	_, err := client.Decide(t.Context(), &host.DecideRequest{
		Request: w.request(), Catalog: catalog, Candidates: candidates, Select: []string{name}, Admit: name, Attempt: 1, NoWait: true,
	})
	if !host.Unknown(err) {
		t.Errorf("Decide of an instance that was drained: %v; want FAILED_PRECONDITION", err)
	}
}

// send sends a catalog of candidates.
func send(t T, client *host.Client, candidates []policy.Candidate) *host.Catalog {
	t.Helper()
	catalog, err := host.NewCatalog(candidates)
	if err != nil {
		t.Fatalf("catalog: %v", err)
	}
	if err := client.SyncCatalog(t.Context(), catalog); err != nil {
		t.Fatalf("send catalog: %v", err)
	}
	return catalog
}
