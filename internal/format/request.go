package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/usherproxy/usher/internal/held"
)

const (
	// MaxModel is the greatest length of a model's name, in bytes.
	MaxModel = 256

	// maxTokens is the greatest number of tokens that is believed.
	maxTokens = 1<<31 - 1
)

// A Body is what the body of a request says, as far as Usher must know.
type Body struct {
	// Model is the model that the caller asks for.
	Model string

	// Stream says whether the caller asks for a stream of events.
	Stream bool

	// InputTokens estimates the size of the prompt in tokens: one for every
	// three bytes of the body, rounded up, and 1500 for each image that is
	// embedded as a data URL in place of its bytes. Text in English has about
	// four bytes a token, code three to four, Chinese three, so the estimate is
	// meant to be too high. What the provider remembers (previous_response_id)
	// is not in it. Of a form only texts and images count.
	InputTokens int64

	// MinInputTokens is a number of tokens that the prompt has at least: that of
	// its words, which is about three quarters of its tokens in English, and
	// nothing of a language without spaces. It is 0 for requests with several
	// prompts, and where the provider is asked to cut what does not fit.
	MinInputTokens int64

	// MaxOutputTokens is the limit of output that the caller asks for, or 0.
	MaxOutputTokens int64

	// Affinity stands for the session of the request, or is empty. It is a
	// hash, because what it is made of (prompt_cache_key, conversation,
	// safety_identifier, or user; the first that is given) may name a person.
	// It does not tell callers apart.
	Affinity string

	// References are what the request names of what a provider stores.
	References References

	models  []span     // where the body names the model
	renamed bool       // the body names another model than its path does
	usage   *held.Edit // by which the body asks for the usage of its stream, or nil
	asks    bool       // that edit is made
}

// A BadRequest is the error of a body that cannot be served.
type BadRequest struct {
	// Message says what is wrong, for the caller. Param is the member that is
	// wrong, or empty.
	Message, Param string
}

// Error returns the message.
func (e *BadRequest) Error() string { return e.Message }

// Scan reads a request of op, which must be one that a candidate serves; of what
// is not an [Inference] nothing need be known. The path is that of its URL, with escapes decoded, and contentType its header. The error
// is a [*BadRequest]. It decodes nothing but the members that it needs, and
// keeps nothing of body.
func (op *Operation) Scan(path, contentType string, body []byte) (Body, error) {
	if op.Kind != Inference {
		return Body{References: References{Answer: op.Reference(path), Stored: op.Kind == Stored}}, nil
	}
	if boundary, ok := op.boundary(contentType); ok {
		return op.scanForm(path, boundary, body)
	}
	if !valid(body) {
		return Body{}, &BadRequest{Message: "the request body is not valid JSON"}
	}
	object := view(body)
	if !object.IsObject() {
		return Body{}, &BadRequest{Message: "the request body is not a JSON object"}
	}
	found, err := op.request.members(object)
	if err != nil {
		return Body{}, err
	}
	b := Body{Stream: found.stream || op.request.streams, Affinity: opaque(found.affinity.value), References: found.references}
	if op.request.options != "" && b.Stream {
		b.usage = usageEdit(body, op.request.options, found.options)
	}
	b.References.Stored = b.References.Stored || op.request.files && namesFiles(object.Raw)
	if !op.Free {
		b.InputTokens, b.MaxOutputTokens = inputTokens(body), found.maxOutput.value
		b.MinInputTokens = min(found.words(), b.InputTokens)
	}
	switch {
	case op.request.model == "":
		err = b.modelOf(op.Model(path), found.models)
	case op.inPath():
		err = b.modelOfPath(op, path, body, found.model)
	default:
		b.models = []span{spanOf(found.model, "")}
		b.Model, err = op.request.modelName(found.model)
	}
	return b, err
}

// members are the values that matter, as they stand in the body.
type members struct {
	model     gjson.Result
	models    []gjson.Result
	stream    bool
	prompt    []gjson.Result
	cut       bool // the provider is to cut a prompt that does not fit
	maxOutput ranked[int64]
	affinity  ranked[string]

	references References
	options    []gjson.Result // of the stream
}

// words counts the words of the prompt.
func (m *members) words() (n int64) {
	for _, v := range m.prompt {
		if !m.cut {
			n += words(v)
		}
	}
	return n
}

// A ranked value comes from the best of several members. Rank 0 is no value;
// otherwise a lower rank is better.
type ranked[T any] struct {
	value T
	rank  int
}

func (r *ranked[T]) offer(value T, rank int) {
	if r.rank == 0 || rank <= r.rank {
		r.value, r.rank = value, rank
	}
}

// members finds the members of a request.
func (r *request) members(object gjson.Result) (found members, err error) {
	object.ForEach(func(key, value gjson.Result) bool {
		switch {
		case r.model != "" && strings.EqualFold(key.Str, r.model): // some providers ignore case
			if found.model.Exists() || key.Str != r.model {
				err = r.oneModel()
			}
			found.model = value
		case r.options != "" && key.Str == r.options:
			found.options = append(found.options, value)
		case r.stream != "" && key.Str == r.stream:
			found.stream = value.Type == gjson.True
		default:
			r.optional(key.Str, value, &found)
		}
		return true
	})
	return found, err
}

// optional looks at a member that a request may have.
func (r *request) optional(name string, value gjson.Result, found *members) {
	if slices.Contains(r.prompt, name) {
		found.prompt = append(found.prompt, value)
	}
	found.cut = found.cut || name == "truncation" && value.Str == "auto"
	for i, path := range r.maxOutput {
		if v := below(name, value, path); v.Type == gjson.Number {
			found.maxOutput.offer(tokens(v), i+1)
		}
	}
	for i, path := range r.affinity {
		if v := below(name, value, path); v.Type == gjson.String && v.Str != "" {
			found.affinity.offer(v.Str, i+1)
		}
	}
	for _, path := range r.answers {
		if v := below(name, value, path); v.Type == gjson.String {
			found.references.Answer = strings.Clone(v.Str)
		}
	}
	for _, path := range r.things {
		if v := below(name, value, path); v.Type == gjson.String && v.Str != "" {
			found.references.Stored = true
		}
	}
	for _, path := range r.models {
		if key, rest, nested := strings.Cut(path, "."); key == name {
			found.models = all(found.models, value, rest, nested)
		}
	}
}

// below returns the value of a path that begins with a member of the given
// name and value, or nothing if it begins with another one.
func below(name string, value gjson.Result, path string) gjson.Result {
	key, rest, nested := strings.Cut(path, ".")
	switch {
	case key != name:
		return gjson.Result{}
	case nested:
		return value.Get(rest)
	}
	return value
}

// all appends the values of a path below value to found, also those of members
// that are given twice.
func all(found []gjson.Result, value gjson.Result, path string, nested bool) []gjson.Result {
	if !nested {
		return append(found, value)
	}
	name, rest, nested := strings.Cut(path, ".")
	value.ForEach(func(key, v gjson.Result) bool {
		if name == "*" && value.IsArray() || value.IsObject() && key.Str == name {
			found = all(found, v, rest, nested)
		}
		return true
	})
	return found
}

// resource is what stands before a model's name in Gemini's bodies.
const resource = "models/"

// modelOf sets the model to that of the path. Where the body repeats it, it
// must be the same: there is but one model to be admitted and routed.
func (b *Body) modelOf(name string, repeated []gjson.Result) error {
	bad := func(message string) error { return &BadRequest{message, "model"} }
	switch {
	case name == "":
		return bad("the path names no model")
	case len(name) > MaxModel:
		return bad(fmt.Sprintf("the model's name is longer than %d bytes", MaxModel))
	case !proper(name) || climbs(name):
		return bad("the path has a model's name that no model has")
	}
	for _, v := range repeated {
		model, prefixed := strings.CutPrefix(v.Str, resource)
		switch {
		case v.Type == gjson.Null:
			continue
		case v.Type != gjson.String || model != name:
			return bad("the model of the body is not that of the path")
		case prefixed:
			b.models = append(b.models, spanOf(v, resource))
		default:
			b.models = append(b.models, spanOf(v, ""))
		}
	}
	b.Model = name
	return nil
}

// modelOfPath sets the model to that of the path, which wins over that of the
// body. The body names it where it is sent.
func (b *Body) modelOfPath(op *Operation, path string, body []byte, named gjson.Result) (err error) {
	b.Model, err = op.pathName(path)
	b.renamed = named.Type != gjson.String || named.Str != b.Model
	if named.Exists() {
		b.models = []span{spanOf(named, "")}
		return err
	}
	start, after := bytes.IndexByte(body, '{')+1, ","
	if bytes.HasPrefix(bytes.TrimSpace(body[start:]), []byte("}")) {
		after = ""
	}
	b.models = []span{{start: start, end: start, before: `"` + op.request.model + `":`, after: after}}
	return err
}

// pathName returns the model that the path names.
func (op *Operation) pathName(path string) (string, error) {
	name, err := op.request.properName(op.Model(path))
	if err == nil && climbs(name) {
		err = &BadRequest{"the path has a model's name that no model has", op.request.model}
	}
	return name, err
}

// oneModel is the error of a request that names the model twice, or in another
// spelling, and noModel that of one that does not name it.
func (r *request) oneModel() error {
	return &BadRequest{fmt.Sprintf("the request must have one parameter %s, in this spelling", r.model), r.model}
}

func (r *request) noModel() error {
	return &BadRequest{fmt.Sprintf("you must provide a %s parameter", r.model), r.model}
}

// proper reports whether a model may have the name.
func proper(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// modelName checks the model's value and copies it.
func (r *request) modelName(value gjson.Result) (string, error) {
	bad := func(format string, args ...any) error {
		return &BadRequest{fmt.Sprintf(format, args...), r.model}
	}
	switch {
	case !value.Exists():
		return "", r.noModel()
	case value.Type != gjson.String:
		return "", bad("the %s parameter must be a string", r.model)
	}
	return r.properName(value.Str)
}

// properName checks the model's name and copies it.
func (r *request) properName(name string) (string, error) {
	bad := func(format string, args ...any) error {
		return &BadRequest{fmt.Sprintf(format, args...), r.model}
	}
	switch {
	case name == "":
		return "", bad("the %s parameter must not be empty", r.model)
	case len(name) > MaxModel:
		return "", bad("the %s parameter is longer than %d bytes", r.model, MaxModel)
	case !proper(name):
		return "", bad("the %s parameter has characters that no model's name has", r.model)
	}
	return strings.Clone(name), nil
}

// tokens returns a number of tokens within what is believed.
func tokens(v gjson.Result) int64 {
	return int64(min(max(v.Num, 0), maxTokens))
}

// opaque returns a short hash of s, or nothing of nothing.
func opaque(s string) string {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

const (
	bytesPerToken  = 3
	tokensPerImage = 1500
)

var imageURL = []byte(`"data:image/`)

// inputTokens estimates the tokens of a request: see [Body.InputTokens].
func inputTokens(body []byte) int64 {
	size, images := len(body), 0
	for {
		i := bytes.Index(body, imageURL)
		if i < 0 {
			break
		}
		body = body[i+len(imageURL):]
		length := max(bytes.IndexByte(body, '"'), 0)
		body = body[length:]
		size, images = size-length, images+1
	}
	return textTokens(size) + int64(images)*tokensPerImage
}

// textTokens estimates the tokens of a text of the given size.
func textTokens(size int) int64 { return int64((size + bytesPerToken - 1) / bytesPerToken) }
