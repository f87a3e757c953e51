package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
)

type config struct {
	Max     int             `json:"max"`
	Wait    sdk.Duration    `json:"wait"`
	Strict  bool            `json:"strict"`
	Share   float64         `json:"share"`
	Name    string          `json:"name"`
	Teams   []string        `json:"teams"`
	Rules   []rule          `json:"rules"`
	Weights map[string]int  `json:"weights"`
	Store   store           `json:"store"`
	Blocks  map[string]rule `json:"blocks"`
	Hidden  int             `json:"-"`
}

type rule struct {
	Model string `json:"model"`
	Limit uint8  `json:"limit"`
}

type store struct {
	DSN     string       `json:"dsn"`
	Timeout sdk.Duration `json:"timeout"`
}

func (c *config) Validate() error {
	var errs []error
	if c.Max < 0 {
		errs = append(errs, sdk.OptionError("max", "must not be negative, is %d", c.Max))
	}
	if c.Name == "panic" {
		panic("validate")
	}
	if c.Name == "" && c.Strict {
		errs = append(errs, errors.New("strict needs a name"))
	}
	return errors.Join(errs...)
}

func defaults() config {
	return config{
		Max:     8,
		Wait:    sdk.Duration(time.Minute),
		Name:    "default",
		Teams:   []string{"red", "blue"},
		Rules:   []rule{{Model: "gpt-4o", Limit: 5}},
		Weights: map[string]int{"red": 1},
		Store:   store{DSN: "memory", Timeout: sdk.Duration(time.Second)},
	}
}

// decode returns what build gets for a configuration.
func decode(t *testing.T, d config, raw string) (config, error) {
	t.Helper()
	var got config
	definition := sdk.Define("config", d, func(_ context.Context, c config) (sdk.Policies, error) {
		got = c
		return sdk.Policies{Selection: policy.FilterFunc(nil)}, nil
	})
	_, err := definition.Build(t.Context(), json.RawMessage(raw))
	return got, err
}

func TestConfigIsDecodedOverDefaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raw  string
		want func(*config)
	}{
		"empty":             {``, func(*config) {}},
		"null":              {`null`, func(*config) {}},
		"empty object":      {`{}`, func(*config) {}},
		"one option":        {`{"max": 3}`, func(c *config) { c.Max = 3 }},
		"zero value":        {`{"max": 0, "name": ""}`, func(c *config) { c.Max, c.Name = 0, "" }},
		"null keeps it":     {`{"max": null, "store": {"dsn": null}}`, func(*config) {}},
		"duration":          {`{"wait": "1m30s"}`, func(c *config) { c.Wait = sdk.Duration(90 * time.Second) }},
		"float":             {`{"share": 0.25}`, func(c *config) { c.Share = 0.25 }},
		"list is replaced":  {`{"teams": ["green"]}`, func(c *config) { c.Teams = []string{"green"} }},
		"list can be empty": {`{"teams": []}`, func(c *config) { c.Teams = []string{} }},
		"list of blocks is replaced": {`{"rules": [{"model": "o1"}, {"limit": 2}]}`, func(c *config) {
			c.Rules = []rule{{Model: "o1"}, {Limit: 2}}
		}},
		"block is merged": {`{"store": {"dsn": "postgres://"}}`, func(c *config) { c.Store.DSN = "postgres://" }},
		"map is merged":   {`{"weights": {"blue": 2}}`, func(c *config) { c.Weights = map[string]int{"red": 1, "blue": 2} }},
		"block in a map":  {`{"blocks": {"a": {"limit": 1}}}`, func(c *config) { c.Blocks = map[string]rule{"a": {Limit: 1}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := defaults()
			c.want(&want)
			got, err := decode(t, defaults(), c.raw)
			if err != nil {
				t.Fatalf("build %s: %v", c.raw, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("build %s (-want +got):\n%s", c.raw, diff)
			}
		})
	}
}

func TestConfigErrorsNameTheOption(t *testing.T) {
	t.Parallel()
	const all = "there are: blocks, max, name, rules, share, store, strict, teams, wait, weights"
	for name, c := range map[string]struct{ raw, want string }{
		"unknown option":     {`{"maxx": 1}`, "maxx: no such option; " + all},
		"other case":         {`{"MAX": 1}`, "MAX: no such option; " + all},
		"not for users":      {`{"Hidden": 1}`, "Hidden: no such option; " + all},
		"unknown nested":     {`{"store": {"dns": "x"}}`, `store: no such option "dns"`},
		"unknown in a list":  {`{"rules": [{"modell": "x"}]}`, `rules: no such option "modell"`},
		"string for number":  {`{"max": "many"}`, "max: wants a whole number, not a string"},
		"fraction":           {`{"max": 1.5}`, "max: wants a whole number, not a number 1.5"},
		"too large":          {`{"rules": [{"limit": 300}]}`, "rules.limit: wants a whole number, not a number 300"},
		"number for string":  {`{"name": 1}`, "name: wants a string, not a number"},
		"string for bool":    {`{"strict": "yes"}`, "strict: wants true or false, not a string"},
		"string for float":   {`{"share": "half"}`, "share: wants a number, not a string"},
		"string for list":    {`{"teams": "red"}`, "teams: wants a list, not a string"},
		"string for block":   {`{"store": "x"}`, "store: wants a block, not a string"},
		"list for block":     {`{"store": []}`, "store: wants a block, not a list"},
		"block for string":   {`{"name": {}}`, "name: wants a string, not a block"},
		"nested":             {`{"store": {"dsn": 5}}`, "store.dsn: wants a string, not a number"},
		"number as duration": {`{"wait": 30}`, `wait: wants a duration such as "1m30s", not a number`},
		"not a duration":     {`{"wait": "30"}`, `wait: "30" is not a duration such as "1m30s"`},
		"nested duration":    {`{"store": {"timeout": 5}}`, `store.timeout: wants a duration such as "1m30s", not a number`},
		"two errors":         {`{"max": "x", "nope": 1}`, "max: wants a whole number, not a string\nnope: no such option; " + all},
		"validate":           {`{"max": -1}`, "max: must not be negative, is -1"},
		"validate twice":     {`{"max": -1, "strict": true, "name": ""}`, "max: must not be negative, is -1\nstrict needs a name"},
		"not an object":      {`[1]`, "configuration is not a JSON object"},
		"not JSON":           {`{"max": `, "configuration is not a JSON object"},
		"panic in validate":  {`{"name": "panic"}`, "policy panicked: validate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := decode(t, defaults(), c.raw); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("build %s: %v, want %s", c.raw, err, c.want)
			}
			definition := sdk.Define("config", defaults(), func(context.Context, config) (sdk.Policies, error) {
				t.Error("validate called build")
				return sdk.Policies{}, nil
			})
			var messages []string
			for _, d := range definition.Validate(json.RawMessage(c.raw)) {
				messages = append(messages, d.Error())
			}
			if got := strings.Join(messages, "\n"); !strings.HasPrefix(got, c.want) {
				t.Errorf("validate %s: %s, want %s", c.raw, got, c.want)
			}
		})
	}
}

func TestDefaultsAreNotShared(t *testing.T) {
	t.Parallel()
	shared := defaults()
	first, err := decode(t, shared, `{"weights": {"blue": 2}}`)
	if err != nil {
		t.Fatal(err)
	}
	first.Teams[0], first.Rules[0].Limit, first.Weights["red"] = "changed", 99, 99
	second, err := decode(t, shared, `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]config{"another instance": second, "the defaults": shared} {
		if diff := cmp.Diff(defaults(), got); diff != "" {
			t.Errorf("an instance changed %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBuildErrorsKeepTheirWords(t *testing.T) {
	t.Parallel()
	refused, unknown := errors.New("refused"), errors.New("unknown host")
	for name, c := range map[string]struct {
		err  error
		want []sdk.Diagnostic
	}{
		"plain":   {refused, []sdk.Diagnostic{{Message: "refused"}}},
		"option":  {sdk.OptionError("dsn", "bad"), []sdk.Diagnostic{{Option: "dsn", Message: "bad"}}},
		"joined":  {errors.Join(refused, sdk.OptionError("dsn", "bad")), []sdk.Diagnostic{{Message: "refused"}, {Option: "dsn", Message: "bad"}}},
		"wrapped": {fmt.Errorf("connect: %w", refused), []sdk.Diagnostic{{Message: "connect: refused"}}},
		"wrapped option": {
			fmt.Errorf("connect: %w", sdk.OptionError("dsn", "bad")), []sdk.Diagnostic{{Option: "dsn", Message: "bad"}},
		},
		"two causes": {fmt.Errorf("connect: %w, %w", refused, unknown), []sdk.Diagnostic{{Message: "connect: refused, unknown host"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := sdk.Define("failing", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
				return sdk.Policies{}, c.err
			})
			_, err := d.Build(t.Context(), nil)
			var want []string
			for _, d := range c.want {
				want = append(want, d.Error())
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("build: %q, want %q", got, want)
			}
		})
	}
}

func TestConfigCanBeAPointerOrAMap(t *testing.T) {
	t.Parallel()
	offer := sdk.Policies{Selection: policy.FilterFunc(nil)}
	pointer := sdk.Define("pointer", &rule{Model: "m"}, func(_ context.Context, c *rule) (sdk.Policies, error) {
		if want := (rule{Model: "m", Limit: 2}); *c != want {
			t.Errorf("config is %+v, want %+v", *c, want)
		}
		return offer, nil
	})
	open := sdk.Define("map", map[string]any{"a": "x"}, func(_ context.Context, c map[string]any) (sdk.Policies, error) {
		if diff := cmp.Diff(map[string]any{"a": "x", "limit": 2.0}, c); diff != "" {
			t.Errorf("config (-want +got):\n%s", diff)
		}
		return offer, nil
	})
	for _, d := range []sdk.Definition{pointer, open} {
		if _, err := d.Build(t.Context(), json.RawMessage(`{"limit": 2}`)); err != nil {
			t.Errorf("build %s: %v", d.Name(), err)
		}
	}
	if ds := pointer.Validate(json.RawMessage(`{"limits": 2}`)); len(ds) != 1 || ds[0].Option != "limits" {
		t.Errorf("validate: %v, want an error about limits", ds)
	}
}

func TestBuildMustOfferAPolicy(t *testing.T) {
	t.Parallel()
	d := sdk.Define("empty", struct{}{}, func(context.Context, struct{}) (sdk.Policies, error) {
		return sdk.Policies{}, nil
	})
	if _, err := d.Build(t.Context(), nil); err == nil {
		t.Error("a plugin without a policy was built")
	}
}

// Whatever the configuration is, decoding it gives diagnostics about its
// options or a config that survives being written and read again.
func FuzzConfig(f *testing.F) {
	f.Add(`{}`)
	f.Add(`{"max": 3, "wait": "1m", "teams": ["a"], "rules": [{"model": "x", "limit": 3}]}`)
	f.Add(`{"store": {"dsn": 5}, "weights": {"a": 1}, "blocks": {"b": {"limit": 9}}}`)
	f.Add(`{"MAX": 1, "max": -1, "max": 2, "": null, "strict": true, "name": ""}`)
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := decode(t, defaults(), raw)
		if strings.Contains(raw, "panic") {
			return
		}
		options := map[string]json.RawMessage{}
		object := raw == "" || json.Unmarshal([]byte(raw), &options) == nil
		if err == nil {
			again, err := decode(t, config{}, mustMarshal(t, c))
			if err != nil {
				t.Fatalf("decode %+v again: %v", c, err)
			}
			if diff := cmp.Diff(mustMarshal(t, c), mustMarshal(t, again)); diff != "" {
				t.Fatalf("decode again (-first +second):\n%s", diff)
			}
		}
		known := slices.Sorted(maps.Keys(jsonFields(t)))
		for name := range options {
			if _, ok := slices.BinarySearch(known, name); !ok && object && err == nil {
				t.Errorf("%s: option %q was taken", raw, name)
			}
		}
		if !object && err == nil {
			t.Errorf("%s was taken", raw)
		}
	})
}

func jsonFields(t *testing.T) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(mustMarshal(t, defaults())), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// probed finds something wrong when it is probed.
type probed struct {
	Port int `json:"port"`
}

func (p probed) Validate() error {
	if p.Port < 0 {
		return sdk.OptionError("port", "is negative")
	}
	return nil
}

func (p probed) Probe() error { return sdk.OptionError("port", "nobody listens at %d", p.Port) }

// What a configuration names is looked at when it is validated, if nothing else is wrong, and not
// when an instance is built, perhaps again.
func TestProbe(t *testing.T) {
	t.Parallel()
	definition := sdk.Define("probed", probed{}, func(context.Context, probed) (sdk.Policies, error) {
		return sdk.Policies{Observer: observer{}}, nil
	})
	for raw, want := range map[string]string{`{"port": 7}`: "nobody listens at 7", `{"port": -1}`: "is negative"} {
		if ds := definition.Validate(json.RawMessage(raw)); len(ds) != 1 || ds[0].Option != "port" || ds[0].Message != want {
			t.Errorf("Validate(%s) = %v, want port: %s", raw, ds, want)
		}
	}
	if _, err := definition.Build(t.Context(), json.RawMessage(`{"port": 7}`)); err != nil {
		t.Errorf("Build = %v", err)
	}
}

type observer struct{}

func (observer) Observe(context.Context, policy.AttemptResult) {}
