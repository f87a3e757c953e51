package format

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/usherproxy/usher/internal/format/jsonscan"
	"github.com/usherproxy/usher/policy"
)

// upgrades reports whether a request asks for a WebSocket, which HTTP/1 alone
// does in this way.
func upgrades(r *http.Request) bool {
	return r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// modelParam is the parameter of the query that names the model of a session.
const modelParam = "model"

// ScanSession reads a request of op, which must be a [Session], from its query.
// A request that names no model asks for the given one, if it is not empty. The
// error is a [*BadRequest].
func (op *Operation) ScanSession(query url.Values, otherwise string) (Body, error) {
	name := query.Get(modelParam)
	if name == "" {
		name = otherwise
	}
	switch {
	case name == "":
		return Body{}, &BadRequest{"a session must name its model in the query, as ?model=NAME", modelParam}
	case len(query[modelParam]) > 1 || len(name) > MaxModel || !proper(name):
		return Body{}, &BadRequest{"the query must name one model that there can be", modelParam}
	}
	return Body{Model: name}, nil
}

// SpliceSession returns the query of a session with another model, if it names
// one. The rest stays as it was written.
func SpliceSession(query, model string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if hasParam(part, modelParam) {
			parts[i] = modelParam + "=" + url.QueryEscape(model)
		}
	}
	return strings.Join(parts, "&")
}

// A SessionMeter watches what a provider sends in a WebSocket, frame by frame
// (RFC 6455), and adds up the usage that it tells. It changes nothing, never
// fails, and holds some kilobytes at most. It is not safe for concurrent use.
type SessionMeter struct {
	usage usageNames
	text  *jsonscan.Scanner

	head    []byte // of the frame, as far as read
	rest    uint64 // of the frame's payload
	opcode  byte
	final   bool   // the frame ends its message
	skip    bool   // the message is no text, or encoded
	control []byte // the payload of a control frame
	closed  bool
	code    int

	known bool
	total policy.Usage
}

// The opcodes of frames.
const (
	frameText    = 1
	frameControl = 8 // and above
	frameClose   = 8
)

// noCode is the code of a session that was closed without one.
const noCode = 1005

// NewSessionMeter returns a SessionMeter for a session of op.
func NewSessionMeter(op *Operation) *SessionMeter {
	return &SessionMeter{usage: op.shape().usage, text: jsonscan.New(maxValue, answerPaths...)}
}

// Write watches the next bytes. It always takes all of p.
func (m *SessionMeter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if m.rest == 0 {
			p = m.readHead(p)
			continue
		}
		piece := p[:min(uint64(len(p)), m.rest)]
		m.payload(piece)
		m.rest -= uint64(len(piece))
		p = p[len(piece):]
		if m.rest == 0 {
			m.frame()
		}
	}
	return n, nil
}

// readHead reads bytes of the head of a frame, and returns what follows.
func (m *SessionMeter) readHead(p []byte) []byte {
	m.head, p = append(m.head, p[0]), p[1:]
	if len(m.head) < 2 {
		return p
	}
	size := 2
	switch length := m.head[1] & 0x7f; length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if m.head[1]&0x80 != 0 { // a mask, which a server must not use
		size += 4
	}
	if len(m.head) < size {
		return p
	}
	m.begin()
	m.head = m.head[:0]
	if m.rest == 0 {
		m.frame()
	}
	return p
}

// begin begins the frame whose head is complete.
func (m *SessionMeter) begin() {
	first, length := m.head[0], uint64(m.head[1]&0x7f)
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(m.head[2:]))
	case 127:
		length = binary.BigEndian.Uint64(m.head[2:])
	}
	m.rest, m.opcode, m.final = length, first&0x0f, first&0x80 != 0
	switch {
	case m.opcode >= frameControl:
		m.control = m.control[:0]
	case m.opcode != 0: // a new message
		m.skip = m.opcode != frameText || first&0x70 != 0 || m.head[1]&0x80 != 0
		m.text.Reset()
	}
}

func (m *SessionMeter) payload(p []byte) {
	switch {
	case m.opcode >= frameControl:
		m.control = append(m.control, p[:min(len(p), 2-min(len(m.control), 2))]...)
	case !m.skip:
		m.text.Write(p)
	}
}

// frame ends a frame.
func (m *SessionMeter) frame() {
	switch {
	case m.opcode == frameClose:
		m.closed, m.code = true, noCode
		if len(m.control) == 2 {
			m.code = int(binary.BigEndian.Uint16(m.control))
		}
	case m.opcode < frameControl && m.final && !m.skip:
		m.message()
	}
}

// message ends a message: one that ends a response tells its usage.
func (m *SessionMeter) message() {
	switch view(m.text.Value(atType).Raw).Str {
	case "response.done", "response.completed", "response.incomplete", "response.failed":
	default:
		return
	}
	var c counts
	if raw := m.text.Value(atResponseUsage).Raw; raw != nil {
		c.take(&m.usage, raw)
	}
	if u := c.usage(); u != nil {
		m.known = true
		m.total.InputTokens += u.InputTokens
		m.total.OutputTokens += u.OutputTokens
		m.total.CachedTokens += u.CachedTokens
		m.total.ReasoningTokens += u.ReasoningTokens
	}
}

// Usage returns the sum of what has been told, or nil if that is nothing.
func (m *SessionMeter) Usage() *policy.Usage {
	if !m.known {
		return nil
	}
	total := m.total
	return &total
}

// Between reports whether what was written ends with a frame, so that another one
// may follow.
func (m *SessionMeter) Between() bool { return len(m.head) == 0 && m.rest == 0 }

// Closed returns the code with which the provider closed the session, and
// whether it did.
func (m *SessionMeter) Closed() (code int, closed bool) { return m.code, m.closed }

// maxReason is how long the reason of a close frame may be, in bytes: RFC 6455,
// section 5.5, without the code.
const maxReason = 123

// CloseFrame returns the frame of a server that closes a session with a code
// (RFC 6455, section 7.4) and a reason, of which it says as much as fits.
func CloseFrame(code uint16, reason string) []byte {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	frame := []byte{0x80 | frameClose, byte(2 + len(reason))}
	return append(binary.BigEndian.AppendUint16(frame, code), reason...)
}

// keyProtocol is what stands before a key among the subprotocols of a
// WebSocket: browsers can set no headers of theirs. ownerProtocols stand before
// the names of the account that the key belongs to.
const keyProtocol = "openai-insecure-api-key."

var ownerProtocols = []string{"openai-organization.", "openai-project."}

// protocolField is the header with the subprotocols.
const protocolField = "Sec-Websocket-Protocol"

// protocols returns the subprotocols that a request offers, without those of
// its key, how many these are, and the first key.
func protocols(h http.Header) (offered []string, ofKey int, key string) {
	for _, value := range h.Values(protocolField) {
		for protocol := range strings.SplitSeq(value, ",") {
			protocol = strings.TrimSpace(protocol)
			begins := func(prefix string) bool {
				return len(protocol) >= len(prefix) && strings.EqualFold(protocol[:len(prefix)], prefix)
			}
			switch {
			case begins(keyProtocol):
				key = cmp.Or(key, protocol[len(keyProtocol):])
				ofKey++
			case slices.ContainsFunc(ownerProtocols, begins):
				ofKey++
			default:
				offered = append(offered, protocol)
			}
		}
	}
	return offered, ofKey, key
}

// stripProtocols removes those of the key from the subprotocols.
func stripProtocols(h http.Header) {
	offered, ofKey, _ := protocols(h)
	switch {
	case ofKey == 0:
	case len(offered) == 0:
		h.Del(protocolField)
	default:
		h.Set(protocolField, strings.Join(offered, ", "))
	}
}
