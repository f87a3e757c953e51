package format

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// credentialFields are the headers in which the SDKs of all formats send a
// key. Callers use the SDK that they have, whatever format it was made for.
var credentialFields = []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// strippedFields are the headers that never reach a provider: what the caller
// shows to this gateway, or to what stands before it.
var strippedFields = append([]string{"Authorization", "Proxy-Authorization", "Cookie"}, credentialFields...)

// credentialParam is the parameter of the query that Gemini's SDKs use.
const credentialParam = "key"

// strippedParams are the parameters of the query that never reach a provider:
// what Google's APIs take for a credential. One that is bad would be held
// against our key, beside which it stands.
var strippedParams = []string{credentialParam, "access_token", "oauth_token"}

// Credential returns the key with which a caller shows who it is, or the empty
// string: a bearer token, one of the headers x-api-key, api-key and
// x-goog-api-key, the subprotocol openai-insecure-api-key of a WebSocket, or
// ?key=, in this order.
func Credential(h http.Header, query url.Values) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
		return token
	}
	for _, field := range credentialFields {
		if v := h.Get(field); v != "" {
			return v
		}
	}
	if _, _, key := protocols(h); key != "" {
		return key
	}
	return query.Get(credentialParam)
}

// StripCredentials removes all that a caller may have shown to this gateway,
// used or not, in any spelling: the headers that [Credential] reads, whatever
// scheme Authorization has, Proxy-Authorization, cookies, and ?key=,
// ?access_token= and ?oauth_token=. The rest of the query and of the
// subprotocols stays as it was written.
func StripCredentials(h http.Header, u *url.URL) {
	for name := range h {
		for _, field := range strippedFields {
			if strings.EqualFold(name, field) {
				delete(h, name)
			}
		}
	}
	stripProtocols(h)
	u.RawQuery = stripParam(u.RawQuery, strippedParams...)
}

// CredentialFields lists the headers that may hold a credential of a caller:
// nobody but this gateway has business with them.
func CredentialFields() []string { return append([]string{protocolField}, strippedFields...) }

// HideCredential returns uri, which need not be well formed, with another value
// in place of the credentials of its query.
func HideCredential(uri, instead string) string {
	path, query, ok := strings.Cut(uri, "?")
	if !ok {
		return uri
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		for _, param := range strippedParams {
			if hasParam(part, param) {
				parts[i] = param + "=" + instead
			}
		}
	}
	return path + "?" + strings.Join(parts, "&")
}

// stripParam removes parameters from a query, in whatever case they are written.
func stripParam(query string, params ...string) string {
	if query == "" {
		return ""
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		if !slices.ContainsFunc(params, func(param string) bool { return hasParam(part, param) }) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// hasParam reports whether a part of a query has the parameter. Some servers let
// a semicolon separate parts, too.
func hasParam(part, param string) bool {
	for pair := range strings.SplitSeq(part, ";") {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if strings.EqualFold(name, param) {
			return true
		}
	}
	return false
}

// SetCredential shows the provider our key, in the header of op's format, or in
// that of Azure's services. An empty secret shows none.
func (op *Operation) SetCredential(h http.Header, secret string, ofAzure bool) {
	switch {
	case secret == "":
	case ofAzure:
		h.Set("Api-Key", secret)
	default:
		h.Set(op.shape().credential(secret))
	}
}
