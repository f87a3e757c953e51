package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"net"
)

// CapabilityFrames says that a plugin takes a session as frames, too: see
// [FramesPreface].
const CapabilityFrames = "frames"

// FramesPreface is what a host sends first on a connection of frames, to the
// socket on which the plugin serves gRPC. That begins otherwise, with "PRI * H".
const FramesPreface = "USHER/1\n"

// Frames are a carrier over a connection of their own. Each message is sent as
// its length, in four bytes, the highest first, and its bytes.
type Frames struct {
	conn net.Conn
	try  trial
	in   *bufio.Reader
	out  []byte // what is being sent
}

// frameHead is the size of what stands before a message.
const frameHead = 4

// maxOut is how much is written at once, in one piece.
const maxOut = 256 << 10

// NewFrames returns a carrier over conn, whose preface has passed.
func NewFrames(conn net.Conn) *Frames {
	return &Frames{conn: conn, try: newTrial(conn), in: bufio.NewReaderSize(conn, 16<<10)}
}

// Send writes the messages as far as the connection takes them at once, and
// returns what writes the rest of them. Of what is large it writes nothing at
// once.
func (f *Frames) Send(messages iter.Seq[any]) (rest func()) {
	size := 0
	for m := range messages {
		if m, ok := hot(m); ok {
			size += frameHead + m.SizeVT()
		}
	}
	if size > maxOut {
		return func() { f.writeEach(messages) }
	}
	f.out = f.out[:0]
	for m := range messages {
		if !f.add(m) {
			return nil
		}
	}
	left := f.out[f.try.write(f.out):]
	if len(left) == 0 {
		return nil
	}
	return func() { _, _ = f.conn.Write(left) } // the receiver sees why it fails
}

// writeEach writes one message after the other.
func (f *Frames) writeEach(messages iter.Seq[any]) {
	for m := range messages {
		f.out = f.out[:0]
		if !f.add(m) {
			return
		}
		if _, err := f.conn.Write(f.out); err != nil {
			return // which the receiver sees
		}
		if cap(f.out) > maxOut {
			f.out = nil
		}
	}
}

// add puts a message behind those that are being sent. It closes the connection,
// which the receiver sees, and reports false if it cannot be sent.
func (f *Frames) add(m any) bool {
	hot, ok := hot(m)
	begin, size := len(f.out), 0
	if ok {
		size = hot.SizeVT()
	}
	if !ok || size > MaxMessageBytes {
		_ = f.conn.Close()
		return false
	}
	f.out = append(f.out, make([]byte, frameHead+size)...)
	binary.BigEndian.PutUint32(f.out[begin:], uint32(size))
	if _, err := hot.MarshalToSizedBufferVT(f.out[begin+frameHead:]); err != nil {
		_ = f.conn.Close()
		return false
	}
	return true
}

// Receive waits for the next frame. The strings of the message are parts of one
// copy of it.
func (f *Frames) Receive(m any) error {
	hot, ok := hot(m)
	if !ok {
		return fmt.Errorf("a frame of %T", m)
	}
	head, err := f.in.Peek(frameHead)
	if err == io.EOF && len(head) > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head)
	if size > MaxMessageBytes {
		return fmt.Errorf("a frame of %d bytes", size)
	}
	if _, err := f.in.Discard(frameHead); err != nil {
		return err
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(f.in, message); err != nil {
		return err
	}
	return hot.UnmarshalVTUnsafe(message)
}
