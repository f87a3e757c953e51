//go:build !unix

package held

import (
	"io"
	"os"
)

// mapped returns the content of a file, and what ends its use. It is read into
// memory here, for that long.
func mapped(file *os.File, size int64) ([]byte, func(), error) {
	text := make([]byte, size)
	if _, err := file.ReadAt(text, 0); err != nil && err != io.EOF {
		return nil, nil, err
	}
	return text, func() {}, nil
}
