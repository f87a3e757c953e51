package format

import (
	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/policy"
)

// usageNames say where a format tells its usage. Input and output are sums, of
// which each part has one or several names: who writes two of them may leave
// one at 0, so the largest holds. All are paths inside an object.
type usageNames struct {
	at                []int // where they stand in an answer or event
	input, output     [][]string
	cached, reasoning []string
}

// maxParts is how many parts a sum has at most.
const maxParts = 3

// counts are what has been told of the usage. Streams tell it several times,
// whole or in parts, and counting up: of each count the largest holds.
type counts struct {
	known             bool
	input, output     [maxParts]int64
	cached, reasoning int64
}

// take takes the counts of an object, unless it has neither input nor output.
func (c *counts) take(n *usageNames, raw []byte) {
	object, next := view(raw), *c
	hasInput := sum(object, n.input, &next.input)
	hasOutput := sum(object, n.output, &next.output)
	if !hasInput && !hasOutput {
		return
	}
	largest(object, n.cached, &next.cached)
	largest(object, n.reasoning, &next.reasoning)
	next.known = true
	*c = next
}

// usage returns the sums, or nil if nothing is known.
func (c *counts) usage() *policy.Usage {
	if !c.known {
		return nil
	}
	u := &policy.Usage{CachedTokens: c.cached, ReasoningTokens: c.reasoning}
	for i := range maxParts {
		u.InputTokens += c.input[i]
		u.OutputTokens += c.output[i]
	}
	return u
}

// sum raises the parts of a sum to what the object has of them.
func sum(object gjson.Result, names [][]string, parts *[maxParts]int64) (ok bool) {
	for i, of := range names {
		ok = largest(object, of, &parts[i]) || ok
	}
	return ok
}

// largest raises count to the largest of the counts at the paths, and reports
// whether there is one.
func largest(object gjson.Result, paths []string, count *int64) (ok bool) {
	for _, path := range paths {
		if v := object.Get(path); v.Type == gjson.Number {
			*count, ok = max(*count, tokens(v)), true
		}
	}
	return ok
}
