package format

import (
	"bytes"
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
	var edits []held.Edit
	if model != b.Model || b.renamed {
		for _, m := range b.models {
			edits = append(edits, held.Edit{Start: int64(m.start), End: int64(m.end), Text: m.text(model)})
		}
	}
	if b.asks {
		edits = append(edits, *b.usage)
	}
	slices.SortStableFunc(edits, func(a, b held.Edit) int { return int(a.Start - b.Start) })
	return edits
}

// AskingForUsage returns b with the edit that lets the answer tell its usage, and
// true; or b as it is, and false, where no edit is needed or none is known to do
// it. The answer then has a chunk that the caller has not asked for: see
// [WithoutUsage].
func (b Body) AskingForUsage() (Body, bool) {
	b.asks = b.usage != nil
	return b, b.asks
}

// usageOption is what stream_options says.
const usageOption = "include_usage"

// usageEdit returns the edit by which a body asks for its usage: of the member of
// the given name and value, or, if there is none, of the beginning of the body,
// an object with members. It is nil if the body asks for it already, or says
// something that is not understood.
func usageEdit(body []byte, name string, options []gjson.Result) *held.Edit {
	const asks = `"` + usageOption + `":true`
	at := func(start, length int, text string) *held.Edit {
		return &held.Edit{Start: int64(start), End: int64(start + length), Text: []byte(text)}
	}
	switch {
	case len(options) == 0:
		return at(bytes.IndexByte(body, '{')+1, 0, `"`+name+`":{`+asks+`},`)
	case len(options) > 1:
		return nil
	}
	o := options[0]
	if o.Type == gjson.Null {
		return at(o.Index, len(o.Raw), `{`+asks+`}`)
	}
	if !o.IsObject() {
		return nil
	}
	var given []gjson.Result
	members := 0
	o.ForEach(func(key, value gjson.Result) bool {
		if members++; key.Str == usageOption {
			given = append(given, value)
		}
		return true
	})
	switch {
	case len(given) == 0 && members == 0:
		return at(o.Index+1, 0, asks)
	case len(given) == 0:
		return at(o.Index+1, 0, asks+",")
	case len(given) == 1 && (given[0].Type == gjson.False || given[0].Type == gjson.Null):
		return at(given[0].Index, len(given[0].Raw), "true")
	}
	return nil
}
