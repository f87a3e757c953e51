package keys_test

import (
	"strings"
	"testing"

	"github.com/usherproxy/usher/plugins/keys"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		``:                                   "",
		`{}`:                                 "",
		`{"order": "least_loaded"}`:          "",
		`{"order": "random"}`:                "order: ",
		`{"order": 1}`:                       "order: ",
		`{"order": "affinity plan cost"}`:    "plans: ",
		`{"order": "plan", "plans": "free"}`: "",
		`{"order": "plan", "plans": 7}`:      "plans: wants one or more words",
		`{"plans": ["free"]}`:                "plans: ",
		`{"order": ["affinity", "plan"], "plans": ["free", "pro"]}`: "",
		`{"store": "redis"}`:    "store: ",
		`{"store": "postgres"}`: "dsn: ",
		`{"store": "postgres", "dsn": "host=db", "schema": "Not a name"}`: "schema: ",
		`{"store": "postgres", "dsn": "postgres://[::"}`:                  "dsn: ",
		`{"store": "postgres", "dsn": "host=db"}`:                         "",
		`{"dsn": "host=db"}`:                         "dsn: ",
		`{"order": []}`:                              "order: ",
		`{"order": ["weighted", "cost"]}`:            "order: ",
		`{"order": "cost latency cost"}`:             "order: ",
		`{"quota_reserve": 1.5}`:                     "",
		`{"quota_reserve": 100}`:                     "quota_reserve: ",
		`{"quota_reserve": -1}`:                      "quota_reserve: ",
		`{"cooldwon": "1s"}`:                         "cooldwon: no such option",
		`{"breaker": {"failures": 0}}`:               "",
		`{"breaker": {"failures": -1}}`:              "breaker.failures: ",
		`{"breaker": {"failures": 1001}}`:            "breaker.failures: ",
		`{"breaker": {"window": "0s"}}`:              "breaker.window: ",
		`{"breaker": {"window": "61m"}}`:             "breaker.window: ",
		`{"breaker": {"open": "33m"}}`:               "breaker.open_max: ",
		`{"breaker": {"open": "-1s"}}`:               "breaker.open: ",
		`{"breaker": {"probe_timeout": "0s"}}`:       "breaker.probe_timeout: ",
		`{"breaker": {"opne": "1s"}}`:                "opne",
		`{"cooldown": "10m", "cooldown_max": "9m"}`:  "cooldown_max: ",
		`{"cooldown": "10m", "cooldown_max": "10m"}`: "",
		`{"cooldown": 10}`:                           "cooldown: ",
		`{"quota_retry": "0s"}`:                      "quota_retry: ",
		`{"invalid_retry": "11m"}`:                   "invalid_retry_max: ",
		`{"invalid_retry": "0s"}`:                    "invalid_retry: ",
	} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range keys.New().Definition().Validate([]byte(config)) {
				got = append(got, d.Error())
			}
			if (want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
