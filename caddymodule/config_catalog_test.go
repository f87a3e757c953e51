package caddymodule_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/usherproxy/usher/policy"
)

const catalogConfig = `{
	"providers": [
		{"name": "openai", "url": "https://api.openai.com", "priority": 5,
			"labels": {"region": "us", "tier": "basic"},
			"limits": [{"kind": "concurrency", "limit": 100}],
			"keys": [
				{"name": "k1", "secret": "none"},
				{"name": "k2", "secret": "none", "priority": 0, "weight": 0, "disabled": true,
					"labels": {"tier": "plus"}, "models": ["large"], "account": "team",
					"limits": [{"kind": "tokens", "limit": 1000, "window": "1m"}, {"kind": "concurrency", "limit": 1}]}
			]},
		{"name": "local", "url": "http://127.0.0.1:8000", "keys": [{"name": "k1", "secret": "none", "labels": {"a": "b"}}]}
	],
	"models": [
		{"name": "large", "context_tokens": 128000, "limits": [{"kind": "requests", "limit": 7, "window": "1s"}],
			"price": {"input": 2.5, "output": 10},
			"serve": [{"provider": "local", "model": "org/large", "price": {"input": 0, "output": 0}}, {"provider": "openai"}]},
		{"name": "small", "serve": [{"provider": "openai"}]},
		{"name": "alias", "serve": [{"provider": "openai", "model": "small"}]}
	]
}`

func TestCatalogFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	c := parse(t, catalogConfig)
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	openai := policy.Scope{ID: "provider:openai", Kind: policy.ScopeConcurrency, Limit: 100}
	large := policy.Scope{ID: "model:large", Kind: policy.ScopeRequests, Limit: 7, Window: time.Second}
	want := []policy.Candidate{
		{
			ID: "local/k1/org/large", Provider: "local", Key: "k1", Account: "local/k1", Model: "org/large", Weight: 1, ContextTokens: 128000,
			Labels: map[string]string{"a": "b"}, Scopes: []policy.Scope{large},
		},
		{
			ID: "openai/k1/large", Provider: "openai", Key: "k1", Account: "openai/k1", Model: "large", Priority: 5, Weight: 1, ContextTokens: 128000, Price: policy.Price{Input: 2.5, Output: 10},
			Labels: map[string]string{"region": "us", "tier": "basic"}, Scopes: []policy.Scope{openai, large},
		},
		{
			ID: "openai/k2/large", Provider: "openai", Key: "k2", Account: "openai/team", Model: "large", Disabled: true, ContextTokens: 128000, Price: policy.Price{Input: 2.5, Output: 10},
			Labels: map[string]string{"region": "us", "tier": "plus"},
			Scopes: []policy.Scope{
				openai,
				{ID: "key:openai/k2", Kind: policy.ScopeTokens, Limit: 1000, Window: time.Minute},
				{ID: "key:openai/k2", Kind: policy.ScopeConcurrency, Limit: 1},
				large,
			},
		},
		{
			ID: "openai/k1/small", Provider: "openai", Key: "k1", Account: "openai/k1", Model: "small", Priority: 5, Weight: 1,
			Labels: map[string]string{"region": "us", "tier": "basic"}, Scopes: []policy.Scope{openai},
		},
		{
			ID: "openai/k1/small", Provider: "openai", Key: "k1", Account: "openai/k1", Model: "small", Priority: 5, Weight: 1,
			Labels: map[string]string{"region": "us", "tier": "basic"}, Scopes: []policy.Scope{openai},
		},
	}
	got := c.Candidates()
	if len(got) != len(want) {
		t.Fatalf("got %d candidates, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("candidate %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
}

func TestCatalogFindsTheCandidatesOfAModel(t *testing.T) {
	t.Parallel()
	c := parse(t, catalogConfig)
	for model, want := range map[string][]string{
		"large":   {"local/k1/org/large", "openai/k1/large", "openai/k2/large"},
		"small":   {"openai/k1/small"},
		"alias":   {"openai/k1/small"},
		"unknown": nil,
	} {
		candidates, ok := c.CandidatesOf(model)
		var got []string
		for _, c := range candidates {
			got = append(got, c.ID)
		}
		if ok != (want != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is served by %q, %t; want %q", model, got, ok, want)
		}
	}
}
