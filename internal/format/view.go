package format

import (
	"unsafe"

	"github.com/tidwall/gjson"
)

// view reads JSON in place, without the copy that gjson makes of bytes. Its
// strings are valid only as long as text does not change: what is to outlive
// the call must be cloned.
func view(text []byte) gjson.Result {
	return gjson.Parse(unsafe.String(unsafe.SliceData(text), len(text)))
}
