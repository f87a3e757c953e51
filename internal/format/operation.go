package format

import (
	"slices"
	"strings"
)

// OpenAI is the name of OpenAI's format, which many other providers speak.
const OpenAI = "openai"

// An Operation is one kind of request of a format. Operations are shared and
// must not be changed.
//
// A nil *Operation is that of a request that matched none: it may be used to
// refuse the request, which is done in the format openai.
type Operation struct {
	// Name is the gen_ai.operation.name of the OpenTelemetry semantic
	// conventions, such as "chat". Operations may share a name.
	Name string

	// APIType is the openai.api.type of the same conventions, or empty if they
	// have no word for it.
	APIType string

	// Format is the name of the format, such as [OpenAI].
	Format string

	// Kind says who answers.
	Kind Kind

	// Method is the HTTP method, and Route the path or its template, such as
	// "/v1/models/{model}". Route is what spans and metrics show.
	Method, Route string

	request request

	// errorEvent overrides how an error looks inside a stream.
	errorEvent func(Refusal) (name string, data any)

	*dialect
}

// A Kind is who answers an operation.
type Kind uint8

// The kinds of operations.
const (
	// Inference is served by a candidate.
	Inference Kind = iota
	// ListModels and GetModel are answered from the configuration.
	ListModels
	GetModel
)

// A request is what a row says of the body of its requests. All members are at
// the top level of a JSON object, but a name may go on to one below with a dot.
type request struct {
	model     string   // required
	stream    string   // the flag that asks for a stream, or empty
	maxOutput []string // the limit of output tokens: the first that is given
	affinity  []string // what names a session: the first that is given
}

// A dialect is what all operations of a format share.
type dialect struct {
	name       string
	operations []Operation
	verbs      []string // what may follow a model's colon in another format's path
	events     map[string]eventKind
	faults     []faultRule
	usage      usageNames

	refusal    func(Refusal) any // the body of an answer that is an error
	credential func(secret string) (field, value string)
}

// dialects lists the formats. The first is that of a request that matched none.
var dialects = []*dialect{openAI}

// Formats lists the names of the formats.
func Formats() []string {
	var names []string
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// Match returns the operation of a request with the given method and URL path,
// with escapes in the path decoded.
func Match(method, path string) (*Operation, bool) {
	for _, d := range dialects {
		for i := range d.operations {
			if op := &d.operations[i]; op.Method == method && op.at(path) {
				return op, true
			}
		}
	}
	return nil, false
}

// Allow returns the methods that the path has operations for, as the value of
// an Allow header, or the empty string if the path is unknown.
func Allow(path string) string {
	var methods []string
	for _, d := range dialects {
		for i := range d.operations {
			if op := &d.operations[i]; op.at(path) && !slices.Contains(methods, op.Method) {
				methods = append(methods, op.Method)
			}
		}
	}
	return strings.Join(methods, ", ")
}

// at reports whether path is one of op's.
func (op *Operation) at(path string) bool {
	if op.Kind == GetModel {
		return op.Model(path) != ""
	}
	return op.Route == path
}

// Model returns the model that the path of a [GetModel] operation names, or
// the empty string. A model's name may have slashes.
func (op *Operation) Model(path string) string {
	prefix, _, _ := strings.Cut(op.Route, "{")
	model, ok := strings.CutPrefix(path, prefix)
	if !ok || op.Kind != GetModel {
		return ""
	}
	if verb := model[strings.LastIndex(model, ":")+1:]; verb != model && slices.Contains(op.verbs, verb) {
		return ""
	}
	return model
}

// newDialect ties the operations of d to it.
func newDialect(d dialect) *dialect {
	for i := range d.operations {
		d.operations[i].Format = d.name
		d.operations[i].dialect = &d
	}
	return &d
}

// shape returns the dialect of op, also of the operation that matched none.
func (op *Operation) shape() *dialect {
	if op == nil {
		return dialects[0]
	}
	return op.dialect
}
