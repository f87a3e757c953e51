package format

import (
	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/policy"
)

// usageNames are the paths of the counts inside a usage object. Of several
// paths the largest count holds: who writes two of them may leave one at 0.
type usageNames struct {
	input, output, cached, reasoning []string
}

// read reads a usage object, or returns nil if it has neither input nor
// output.
func (n *usageNames) read(raw []byte) *policy.Usage {
	object := view(raw)
	input, hasInput := largest(object, n.input)
	output, hasOutput := largest(object, n.output)
	if !hasInput && !hasOutput {
		return nil
	}
	u := &policy.Usage{InputTokens: input, OutputTokens: output}
	u.CachedTokens, _ = largest(object, n.cached)
	u.ReasoningTokens, _ = largest(object, n.reasoning)
	return u
}

// largest returns the largest of the counts at the paths.
func largest(object gjson.Result, paths []string) (count int64, ok bool) {
	for _, path := range paths {
		if v := object.Get(path); v.Type == gjson.Number {
			count, ok = max(count, tokens(v)), true
		}
	}
	return count, ok
}
