package main

import (
	"slices"
	"testing"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk"
	"github.com/usherproxy/usher/sdk/policytest"
)

func define() sdk.Definition { return sdk.Define("cheapest", defaults, build) }

func TestKeepsTheContract(t *testing.T) {
	t.Parallel()
	policytest.TestDefinition(t, define, `{}`, `{"prices": {"gpt-4o": {"input": 1, "output": 2}}, "output_tokens": 0}`)
}

func TestRanksByCost(t *testing.T) {
	t.Parallel()
	candidates := []policy.Candidate{
		{ID: "unknown", Model: "unknown"},
		{ID: "short", Model: "short", Price: policy.Price{Input: 1, Output: 100}},
		{ID: "long", Model: "long", Price: policy.Price{Input: 10, Output: 10}},
		{ID: "also long", Model: "long", Price: policy.Price{Input: 10, Output: 10}},
		{ID: "free", Model: "free"},
	}
	s := policytest.Build(t, define(), `{"prices": {"free": {}}}`).Selection
	for name, test := range map[string]struct {
		request policy.Request
		want    []string
	}{
		"a long prompt":     {policy.Request{InputTokens: 100_000, MaxOutputTokens: 10}, []string{"free", "short", "long", "also long", "unknown"}},
		"a long answer":     {policy.Request{InputTokens: 10, MaxOutputTokens: 10_000}, []string{"free", "long", "also long", "short", "unknown"}},
		"an unknown answer": {policy.Request{InputTokens: 10}, []string{"free", "long", "also long", "short", "unknown"}},
	} {
		got, err := s.Select(t.Context(), &policy.SelectRequest{Request: &test.request, Candidates: candidates})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, v := range got.Verdicts {
			order = append(order, v.Candidate)
		}
		if !slices.Equal(order, test.want) {
			t.Errorf("%s: ranked %v, want %v", name, order, test.want)
		}
	}
}

func TestWrongPricesAreNamed(t *testing.T) {
	t.Parallel()
	for config, option := range map[string]string{
		`{"prices": {"m": {"input": -1}}}`: "prices.m", `{"output_tokens": -1}`: "output_tokens",
	} {
		if ds := define().Validate([]byte(config)); len(ds) != 1 || ds[0].Option != option {
			t.Errorf("%s: %v, want an error about %s", config, ds, option)
		}
	}
}
