package format

import (
	"net/url"
	"slices"
	"strings"
)

// verbs are what follows a model's colon in the paths of the Gemini API, which
// lie below OpenAI's and Anthropic's /v1/models/, too.
var verbs = []string{
	"generateContent", "streamGenerateContent", "batchGenerateContent", "generateAnswer", "countTokens",
	"embedContent", "batchEmbedContents", "asyncBatchEmbedContent", "predict", "predictLongRunning",
}

// at reports whether path is one of op's.
func (op *Operation) at(path string) bool {
	switch {
	case op.place == "":
		return op.Route == path
	case !strings.HasPrefix(path, op.prefix): // almost always
		return false
	case op.inPath():
		return op.Model(path) != ""
	}
	return op.thing(path) != ""
}

// The places of a route: what stands there is in the path.
const (
	modelPlace = "{model}"
	thingPlace = "{path}" // at the end: a name, and perhaps more segments
)

// setPlace finds the place of the route.
func (op *Operation) setPlace() {
	for _, place := range []string{modelPlace, thingPlace} {
		if prefix, suffix, ok := strings.Cut(op.Route, place); ok {
			op.place, op.prefix, op.suffix = place, prefix, suffix
		}
	}
}

// Model returns the model that the path, with escapes decoded, names in the
// place of {model} of op's route, or the empty string. A model's name may have
// slashes.
func (op *Operation) Model(path string) string {
	if !op.inPath() || len(path) < len(op.prefix)+len(op.suffix) || !strings.HasPrefix(path, op.prefix) || !strings.HasSuffix(path, op.suffix) {
		return ""
	}
	model := path[len(op.prefix) : len(path)-len(op.suffix)]
	if verb := model[strings.LastIndex(model, ":")+1:]; verb != model && slices.Contains(verbs, verb) {
		return ""
	}
	return model
}

// inPath reports whether the path names the model.
func (op *Operation) inPath() bool { return op.place == modelPlace }

// SplicePath returns the path at a provider, decoded and as it is escaped, of a
// request with the URL u, with its model replaced by the given one. A model
// stays in one segment, whatever its name is. If the path names no model, or
// this one, it is the path of u; but what only Azure has is left out, and a
// model in it is to be named in the body.
func (op *Operation) SplicePath(u *url.URL, model string) (path, escaped string) {
	if op.target != "" {
		return op.target, op.target
	}
	path, escaped = u.Path, u.EscapedPath()
	if op.inPath() && op.Model(path) != model {
		path, escaped = op.prefix+model+op.suffix, op.prefix+url.PathEscape(model)+op.suffix
	}
	if op.under == "" {
		return path, escaped
	}
	path = version + strings.TrimPrefix(path, op.under)
	if rest, ok := strings.CutPrefix(escaped, op.under); ok {
		return path, version + rest
	}
	return path, (&url.URL{Path: path}).EscapedPath()
}

// AzurePath returns the path of a request at Azure's services, from that of
// [Operation.SplicePath]: operations of a deployment lie below it, which is what
// the model is called there, and sessions are in OpenAI's own version.
func (op *Operation) AzurePath(path, escaped, model string) (azurePath, azureEscaped string) {
	below, belowEscaped := azure, azure
	switch {
	case op.Kind == Session:
		below, belowEscaped = azure+version, azure+version
	case op.deployed:
		below, belowEscaped = azureDeployment+model, azureDeployment+url.PathEscape(model)
	}
	return below + strings.TrimPrefix(path, version), belowEscaped + strings.TrimPrefix(escaped, version)
}

// apiVersion is the parameter of the query by which Azure tells its versions.
const apiVersion = "api-version"

// SpliceQuery returns the query of a request at a provider. One of Azure's needs
// a version: the given one, unless the request has one. Others get none from a
// request that has a path of Azure's, nor do sessions.
func (op *Operation) SpliceQuery(query, azureVersion string) string {
	if op.Kind == Session {
		azureVersion = ""
	}
	switch without := stripParam(query, apiVersion); {
	case azureVersion == "" && (op.under != "" || op.target != "" || op.Kind == Session):
		return without
	case azureVersion == "" || without != query:
		return query
	case query == "":
		return apiVersion + "=" + url.QueryEscape(azureVersion)
	}
	return query + "&" + apiVersion + "=" + url.QueryEscape(azureVersion)
}

// climbs reports whether a model's name would, in a path, lead out of where it
// stands.
func climbs(model string) bool {
	for segment := range strings.SplitSeq(model, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
