package format

import (
	"net/http"
	"slices"
	"strings"
)

// methods are those of the operations on stored things.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodDelete}

// stored returns the operations on the things below a route, and with the route
// itself on all of them.
func stored(name, route string) []Operation {
	return append(onThings(Stored, name, route), onThings(Stored, name, route+"/"+thingPlace)...)
}

// followUps returns the operations on earlier answers, which lie below a route.
func followUps(name, route string) []Operation { return onThings(FollowUp, name, route+"/"+thingPlace) }

func onThings(kind Kind, name, route string) []Operation {
	ops := make([]Operation, 0, len(methods))
	for _, method := range methods {
		ops = append(ops, Operation{Name: name, Kind: kind, Method: method, Route: route, Free: true})
	}
	return ops
}

// unnamed reports whether op's requests name no model, but things that a
// provider stores.
func (op *Operation) unnamed() bool { return op.Kind == Stored || op.Kind == FollowUp }

// thing returns what stands in the place of {path} in op's route, or nothing. It
// leads nowhere else.
func (op *Operation) thing(path string) string {
	thing, ok := strings.CutPrefix(path, op.prefix)
	if !ok || op.place != thingPlace || climbs(thing) || slices.Contains(strings.Split(thing, "/"), "") {
		return ""
	}
	return thing
}

// Reference returns the ID of the earlier answer that a [FollowUp] is about. The
// path is that of its URL, with escapes decoded.
func (op *Operation) Reference(path string) string {
	id, _, _ := strings.Cut(op.thing(path), "/")
	return id
}

// References are what a request names of what a provider stores, all of which
// must be where the request is sent.
type References struct {
	// Answer is the ID of the earlier answer that the request goes on from, or
	// empty.
	Answer string

	// Stored says that the request names a file, a vector store, or a
	// conversation.
	Stored bool
}

// fileMembers are those whose strings name stored things, wherever they are.
var fileMembers = []string{"file_id", "file_ids", "vector_store_ids"}

// namesFiles reports whether a body names files or vector stores.
func namesFiles(body string) bool {
	return slices.ContainsFunc(fileMembers, func(name string) bool { return names(body, name) })
}

// names reports whether a JSON text has a member of the name whose value is a
// string or a list. Inside a string the quotes would be escaped.
func names(text, name string) bool {
	member := `"` + name + `"`
	for {
		_, after, ok := strings.Cut(text, member)
		if !ok {
			return false
		}
		value, colon := strings.CutPrefix(strings.TrimLeft(after, " \t\r\n"), ":")
		if value = strings.TrimLeft(value, " \t\r\n"); colon && (strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "[")) {
			return true
		}
		text = after
	}
}

// notHere are the codes of errors that tell that an earlier answer is not there.
var notHere = []string{"previous_response_not_found"}

// Elsewhere reports whether an answer that is an error tells that the earlier
// answer which the request names is not at the provider's account, but may be at
// another one.
func (op *Operation) Elsewhere(status int, body []byte) bool {
	if op.Kind == FollowUp {
		return status == http.StatusNotFound
	}
	if status != http.StatusNotFound && status != http.StatusBadRequest {
		return false
	}
	e := view(body).Get("error")
	return slices.Contains(notHere, e.Get("code").Str) || slices.ContainsFunc(op.request.answers, func(param string) bool {
		return status == http.StatusNotFound && e.Get("param").Str == param
	})
}
