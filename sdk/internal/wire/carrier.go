package wire

import "iter"

// A Carrier carries the messages of a session. One goroutine receives and one
// sends at a time.
type Carrier interface {
	// Send sends messages in their order, which it may go through again. Each is
	// valid until the next one is asked for. It does not block: it returns what
	// sends the rest and may block, or nil. The receiver sees why a carrier
	// fails.
	Send(messages iter.Seq[any]) (rest func())

	// Receive waits for the next message.
	Receive(m any) error
}

// A Stream is a carrier over a stream of gRPC.
type Stream struct {
	Stream interface {
		SendMsg(m any) error
		RecvMsg(m any) error
	}
}

// Send returns what sends the messages: a stream that is full blocks.
func (s Stream) Send(messages iter.Seq[any]) (rest func()) {
	return func() {
		for m := range messages {
			if s.Stream.SendMsg(m) != nil {
				return
			}
		}
	}
}

// Receive waits for the next message.
func (s Stream) Receive(m any) error { return s.Stream.RecvMsg(m) }

var (
	_ Carrier = Stream{}
	_ Carrier = (*Frames)(nil)
)
