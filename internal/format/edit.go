package format

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/internal/held"
)

// A span is a part of a body that names the model.
type span struct {
	start, end    int
	before, after string // what stands there besides the name
	prefix        string // of the name itself
	plain         bool   // the name is no JSON string
}

// spanOf returns the span of a value, of which the prefix stands before the
// model's name.
func spanOf(v gjson.Result, prefix string) span {
	return span{start: v.Index, end: v.Index + len(v.Raw), prefix: prefix}
}

// text is what stands at the span for a model.
func (s span) text(model string) []byte {
	text := []byte(s.before)
	if s.plain {
		text = append(text, model...)
	} else {
		text = gjson.AppendJSONString(text, s.prefix+model)
	}
	return append(text, s.after...)
}

// Edits returns what is to be changed of the body that b was scanned from, so
// that it asks for the given model. Nothing else differs. If the model is the
// same, or the body does not name it, that is nothing.
func (b Body) Edits(model string) []held.Edit {
	if model == b.Model && !b.renamed {
		return nil
	}
	var edits []held.Edit
	for _, m := range b.models {
		edits = append(edits, held.Edit{Start: int64(m.start), End: int64(m.end), Text: m.text(model)})
	}
	slices.SortStableFunc(edits, func(a, b held.Edit) int { return int(a.Start - b.Start) })
	return edits
}
