package format

import (
	"net/http"
	"slices"
	"strings"
)

// The names of the formats.
const (
	// OpenAI is OpenAI's format, which many other providers speak.
	OpenAI = "openai"
	// Anthropic is the format of Anthropic's Messages API.
	Anthropic = "anthropic"
	// Gemini is the format of Google's Gemini API.
	Gemini = "gemini"
)

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

	// Free says that the operation uses no tokens.
	Free bool

	// Keeps says that the provider may keep the answer, so that later requests
	// name its ID.
	Keeps bool

	// Once says that a request starts a job, which must not run twice.
	Once bool

	request request

	place, prefix, suffix string // of the route: what varies, and what is around it

	// Azure has paths of its own. under is what stands there in place of /v1,
	// and target the whole path that an operation of a deployment has elsewhere;
	// deployed says that Azure has the operation below a deployment.
	under, target string
	deployed      bool

	// streamError overrides how an error looks inside a stream.
	streamError func(Refusal) (name string, data any)

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
	// Stored is about what a provider's account stores, such as files, and
	// names no model.
	Stored
	// FollowUp is about an earlier answer, which is where it came from.
	FollowUp
	// Session is a WebSocket, which is served by a candidate as a whole.
	Session
)

// A request is what a row says of the body of its requests. All members are at
// the top level of a JSON object, but a name may go on to one below with a dot.
// Of a form they are fields.
type request struct {
	forms     bool     // the body may be a form, too
	model     string   // required, but where the path names the model; empty where only the path does
	models    []string // where the body repeats the model of the path; "*" is each of a list
	stream    string   // the flag that asks for a stream, or empty
	streams   bool     // the answer is always a stream
	options   string   // the member by which a stream is asked to tell its usage, or empty
	prompt    []string // what the model reads
	maxOutput []string // the limit of output tokens: the first that is given
	affinity  []string // what names a session: the first that is given
	answers   []string // what names an earlier answer
	things    []string // what names another thing that the provider stores
	files     bool     // files and vector stores may be named anywhere
}

// A dialect is what all operations of a format share.
type dialect struct {
	name       string
	operations []Operation
	events     map[string]eventKind   // by type, or by name
	chunk      func(*Meter) eventKind // what an event means that is not among them
	begins     string                 // the event with which streams begin that tell their end
	lists      bool                   // a stream may come as a list of JSON, too
	faults     []faultRule
	limits     []limit
	usage      usageNames

	// signed reports whether a request has a sign of the format, where the path
	// is one of another format, too. Nil is the format without a sign.
	signed func(*http.Request) bool

	refusal    func(Refusal) any // the body of an answer that is an error
	errorEvent string            // the name of the event that is an error, or empty
	credential func(secret string) (field, value string)
	model      func(Model) any   // an entry of the listing
	listing    func([]Model) any // the body of the listing
}

// dialects lists the formats. The first is that of a request that matched none.
var dialects = []*dialect{openAI, anthropic, gemini}

// Formats lists the names of the formats.
func Formats() []string {
	var names []string
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// Find returns the operation of a request. Where several formats have an
// operation at the path, it is that of the format of which the request has a
// sign, and else OpenAI's.
func Find(r *http.Request) (*Operation, bool) {
	var found *Operation
	for _, d := range dialects {
		if op := d.find(r); op != nil && (found == nil || d.signed(r)) {
			found = op
		}
	}
	return found, found != nil
}

// Unserved returns an operation by which to refuse a request that [Find] does not
// know: one of the format of which the request has a sign, and else OpenAI's.
func Unserved(r *http.Request) *Operation {
	for _, d := range dialects {
		if d.signed != nil && d.signed(r) {
			return &Operation{Format: d.name, dialect: d}
		}
	}
	return nil
}

// find returns the operation of a request, or nil.
func (d *dialect) find(r *http.Request) *Operation {
	for i := range d.operations {
		if op := &d.operations[i]; op.Method == r.Method && op.at(r.URL.Path) && (op.Kind == Session) == upgrades(r) {
			return op
		}
	}
	return nil
}

// Methods returns the methods that the path has operations for, as the value
// of an Allow header, or the empty string if the path is unknown. What is [Stored]
// is not everywhere, and a [Session] has no method of its own: both are left out.
func Methods(path string) string {
	var methods []string
	for _, d := range dialects {
		for i := range d.operations {
			if op := &d.operations[i]; op.Kind != Stored && op.Kind != Session && op.at(path) && !slices.Contains(methods, op.Method) {
				methods = append(methods, op.Method)
			}
		}
	}
	return strings.Join(methods, ", ")
}

// newDialect ties the operations of d to it.
func newDialect(d dialect) *dialect {
	for i := range d.operations {
		d.operations[i].Format = d.name
		d.operations[i].dialect = &d
		d.operations[i].setPlace()
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
