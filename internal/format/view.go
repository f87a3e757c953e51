package format

import (
	"bytes"
	"encoding/json"
	"unsafe"

	"github.com/tidwall/gjson"
)

// view reads JSON in place, without the copy that gjson makes of bytes. Its
// strings are valid only as long as text does not change: what is to outlive
// the call must be cloned.
func view(text []byte) gjson.Result {
	return gjson.Parse(unsafe.String(unsafe.SliceData(text), len(text)))
}

// maxBrackets is how many brackets a text may have for gjson to check it: it is
// how deep the standard library lets them stand inside each other.
const maxBrackets = 10_000

// valid reports whether text is JSON, as [json.Valid] does. The check of gjson
// is many times faster, but has no limit of depth and could exhaust the stack:
// it gets no text that could be so deep.
func valid(text []byte) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxBrackets {
		return json.Valid(text)
	}
	return gjson.ValidBytes(text)
}
