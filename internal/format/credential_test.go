package format_test

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

func TestCredentialIsFoundWhereSDKsPutIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		query  string
		want   string
	}{
		"nothing":             {nil, "", ""},
		"a bearer token":      {http.Header{"Authorization": {"Bearer k"}}, "", "k"},
		"in any case":         {http.Header{"Authorization": {"bEARER  k "}}, "", "k"},
		"x-api-key":           {http.Header{"X-Api-Key": {"k"}}, "", "k"},
		"api-key":             {http.Header{"Api-Key": {"k"}}, "", "k"},
		"x-goog-api-key":      {http.Header{"X-Goog-Api-Key": {"k"}}, "", "k"},
		"the query":           {nil, "alt=sse&key=k", "k"},
		"the bearer first":    {http.Header{"Authorization": {"Bearer k"}, "X-Api-Key": {"x"}}, "key=y", "k"},
		"no bearer":           {http.Header{"Authorization": {"Basic eDp5"}, "X-Api-Key": {"k"}}, "", "k"},
		"an empty bearer":     {http.Header{"Authorization": {"Bearer "}}, "key=k", "k"},
		"a scheme and no key": {http.Header{"Authorization": {"k"}}, "", ""},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := format.Credential(c.header, query); got != c.want {
			t.Errorf("%s: Credential = %q, want %q", name, got, c.want)
		}
	}
}

func TestStripCredentialsLeavesNone(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Authorization": {"Bearer a", "Basic b"}, "authorization": {"c"}, "AUTHORIZATION": {"d"},
		"X-Api-Key": {"e"}, "x-api-key": {"f"}, "Api-Key": {"g"}, "X-Goog-Api-Key": {"h"}, "X-GOOG-API-KEY": {"i"},
		"Proxy-Authorization": {"j"}, "Cookie": {"k"},
		"Content-Type": {"application/json"}, "Openai-Organization": {"org"}, "Anthropic-Version": {"2023-06-01"},
	}
	format.StripCredentials(h, &url.URL{})
	if want := (http.Header{
		"Content-Type": {"application/json"}, "Openai-Organization": {"org"}, "Anthropic-Version": {"2023-06-01"},
	}); !reflect.DeepEqual(h, want) {
		t.Errorf("left %v, want %v", h, want)
	}
	for query, want := range map[string]string{
		"":                                   "",
		"key=k":                              "",
		"alt=sse&key=k":                      "alt=sse",
		"KEY=k&b=2&a=1&Key=k&%6bey=k":        "b=2&a=1",
		"key":                                "",
		"a=1;key=k&b=2":                      "b=2",
		"access_token=k&a=1&OAuth_Token=k":   "a=1",
		"a=%zz&%zz=1&b=x+y%20z":              "a=%zz&%zz=1&b=x+y%20z",
		"monkey=1&keys=2&api-version=2024&&": "monkey=1&keys=2&api-version=2024&&",
	} {
		u := &url.URL{RawQuery: query}
		format.StripCredentials(http.Header{}, u)
		if u.RawQuery != want {
			t.Errorf("query %q: left %q, want %q", query, u.RawQuery, want)
		}
	}
}

func TestSetCredentialShowsOurKey(t *testing.T) {
	t.Parallel()
	op := operation(t, "POST", chatPath)
	h := http.Header{"Authorization": {"Bearer theirs"}}
	op.SetCredential(h, "ours", false)
	if got := h["Authorization"]; len(got) != 1 || got[0] != "Bearer ours" {
		t.Errorf("Authorization %v, want our key alone", got)
	}
	for path, field := range map[string]string{messagesPath: "X-Api-Key", generatePath: "X-Goog-Api-Key"} {
		h := http.Header{"Anthropic-Version": {"2026-10-21"}, "Anthropic-Beta": {"b"}}
		operation(t, "POST", path).SetCredential(h, "ours", false)
		if h.Get(field) != "ours" || h.Get("Authorization") != "" || h.Get("Anthropic-Version") != "2026-10-21" || len(h) != 3 {
			t.Errorf("%s: %v, want our key in %s and the rest as it was", path, h, field)
		}
	}
	h = http.Header{}
	op.SetCredential(h, "ours", true)
	if h.Get("Api-Key") != "ours" || len(h) != 1 {
		t.Errorf("Azure is shown %v", h)
	}
	h = http.Header{}
	op.SetCredential(h, "", false)
	if len(h) != 0 {
		t.Errorf("an empty secret set %v", h)
	}
}
