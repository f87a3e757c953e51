package format

import (
	"bufio"
	"bytes"
	"fmt"
	"mime"
	"net/textproto"
	"slices"
	"strings"
)

// boundary returns the boundary of a form, if the body is one and op takes
// forms.
func (op *Operation) boundary(contentType string) (string, bool) {
	if !op.request.forms {
		return "", false
	}
	media, params, err := mime.ParseMediaType(contentType)
	return params["boundary"], err == nil && media == "multipart/form-data"
}

// A field is one part of a form. Its value is body[start:end].
type field struct {
	name, media string
	file        bool
	start, end  int
}

const (
	maxFields      = 1000
	maxFieldHeader = 8 << 10
	maxBoundary    = 70
)

// errForm is the error of a form that is none, or that another program might
// read in another way.
var errForm = &BadRequest{Message: "the request body is not valid multipart/form-data"}

// fields reads a form. It is strict, because whoever reads the form next must
// find the same in it: lines end with CRLF, nothing stands before the first
// boundary and after the last, and wherever the boundary stands a part ends.
func fields(body []byte, boundary string) ([]field, error) {
	if boundary == "" || len(boundary) > maxBoundary {
		return nil, errForm
	}
	dashes := []byte("--" + boundary)
	var all []field
	at := bytes.Index(body, dashes)
	if at != 0 && (at != 2 || body[0] != '\r' || body[1] != '\n') {
		return nil, errForm
	}
	for len(all) < maxFields {
		rest := body[at+len(dashes):]
		if end, ok := bytes.CutPrefix(rest, []byte("--")); ok {
			if len(bytes.TrimSpace(end)) > 0 {
				return nil, errForm
			}
			return all, nil
		}
		rest, ok := bytes.CutPrefix(bytes.TrimLeft(rest, " \t"), []byte("\r\n"))
		if !ok {
			return nil, errForm
		}
		header, value, ok := cutHeader(rest)
		if !ok {
			return nil, errForm
		}
		f, err := newField(header)
		if err != nil {
			return nil, err
		}
		length := bytes.Index(value, dashes)
		f.start = len(body) - len(value)
		at = f.start + length
		f.end = at - len("\r\n")
		if length < len("\r\n") || body[at-2] != '\r' || body[at-1] != '\n' {
			return nil, errForm
		}
		all = append(all, f)
	}
	return nil, &BadRequest{Message: fmt.Sprintf("the form has more than %d parts", maxFields)}
}

// cutHeader returns the header of a part, and what follows it.
func cutHeader(part []byte) (header, rest []byte, ok bool) {
	end := bytes.Index(part[:min(len(part), maxFieldHeader)], []byte("\r\n\r\n"))
	if end < 0 {
		return nil, nil, false
	}
	return part[:end+4], part[end+4:], true
}

// plainEncodings are those that leave the bytes of a value as they are.
var plainEncodings = []string{"", "7bit", "8bit", "binary"}

// newField reads the header of a part.
func newField(header []byte) (field, error) {
	if bytes.ContainsAny(bytes.ReplaceAll(header, []byte("\r\n"), nil), "\r\n\x00") {
		return field{}, errForm
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(header))).ReadMIMEHeader()
	disposition := h.Values("Content-Disposition")
	if err != nil || len(disposition) != 1 || encodesName(disposition[0]) {
		return field{}, errForm
	}
	kind, params, err := mime.ParseMediaType(disposition[0])
	name, named := params["name"]
	if err != nil || kind != "form-data" || !named {
		return field{}, errForm
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	f := field{name: name, media: media}
	_, f.file = params["filename"]
	if !f.file && !slices.Contains(plainEncodings, strings.ToLower(h.Get("Content-Transfer-Encoding"))) {
		return field{}, errForm
	}
	return f, nil
}

// encodesName reports whether a part's name may be written as name*, which not
// everybody reads.
func encodesName(disposition string) bool {
	d := strings.ToLower(disposition)
	for {
		before, after, ok := strings.Cut(d, "name*")
		if !ok {
			return false
		}
		if !strings.HasSuffix(before, "file") {
			return true
		}
		d = after
	}
}

// scanForm reads a request that is a form: see [Operation.Scan].
func (op *Operation) scanForm(path, boundary string, body []byte) (Body, error) {
	all, err := fields(body, boundary)
	if err != nil {
		return Body{}, err
	}
	b := Body{Stream: op.request.streams}
	var model *field
	var affinity ranked[string]
	for i, f := range all {
		value := body[f.start:f.end]
		switch {
		case strings.EqualFold(f.name, op.request.model): // some providers ignore case
			if model != nil || f.file || f.name != op.request.model {
				return Body{}, op.request.oneModel()
			}
			model = &all[i]
		case f.file:
			if strings.HasPrefix(f.media, "image/") {
				b.InputTokens += tokensPerImage
			}
		default:
			b.InputTokens += textTokens(len(value))
			if f.name == op.request.stream && len(value) < len("false") {
				b.Stream = strings.EqualFold(string(value), "true") || string(value) == "1"
			}
			if rank := slices.Index(op.request.affinity, f.name); rank >= 0 && len(value) > 0 {
				affinity.offer(string(value), rank+1)
			}
		}
	}
	if op.Free {
		b.InputTokens = 0
	}
	b.Affinity = opaque(affinity.value)
	return b, b.modelOfForm(op, path, boundary, body, model)
}

// modelOfForm sets the model to that of the path, or else of the form.
func (b *Body) modelOfForm(op *Operation, path, boundary string, body []byte, model *field) error {
	var err error
	switch {
	case op.inPath() && model == nil:
		b.renamed = true
		before := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + op.request.model + "\"\r\n\r\n"
		at := bytes.Index(body, []byte("--"+boundary))
		b.models = []span{{start: at, end: at, before: before, after: "\r\n", plain: true}}
		b.Model, err = op.pathName(path)
		return err
	case model == nil:
		return op.request.noModel()
	}
	named, err := op.request.properName(string(body[model.start:model.end]))
	b.Model = named
	if op.inPath() {
		b.Model, err = op.pathName(path)
		b.renamed = b.Model != named
	}
	b.models = []span{{start: model.start, end: model.end, plain: true}}
	return err
}
