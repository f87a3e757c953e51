package wire_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// sockets returns the two ends of a connection over a socket.
func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	a, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _ = a.Close(), b.Close(), l.Close() // the test may have closed them
	})
	return a, b
}

// question returns a message of some size.
func question(id uint64, size int) *policypb.SessionRequest {
	return &policypb.SessionRequest{Calls: []*policypb.SessionCall{{
		Id: id, Decide: &policypb.DecideRequest{Request: &policypb.Request{Id: strings.Repeat("x", size)}},
	}}}
}

func checkQuestion(t *testing.T, from *wire.Frames, id uint64, size int) {
	t.Helper()
	got := &policypb.SessionRequest{}
	if err := from.Receive(got); err != nil {
		t.Fatalf("receive %d: %v", id, err)
	}
	if c := got.GetCalls()[0]; c.GetId() != id || len(c.GetDecide().GetRequest().GetId()) != size {
		t.Fatalf("received call %d of %d bytes, want %d of %d", c.GetId(), len(c.GetDecide().GetRequest().GetId()), id, size)
	}
}

// Who sends is never held up by who does not read, and nothing is lost.
func TestAFullSocketBlocksNobody(t *testing.T) {
	t.Parallel()
	a, b := sockets(t)
	from, to := wire.NewFrames(a), wire.NewFrames(b)
	sizes := []int{0, 1, 100_000, 3 << 20, 7}
	out := wire.NewOutbox(func(all []*policypb.SessionRequest) (rest func()) {
		return from.Send(func(yield func(any) bool) {
			for _, m := range all {
				if !yield(m) {
					return
				}
			}
		})
	}, func([]*policypb.SessionRequest) {})
	const rounds = 5
	for i := range rounds * len(sizes) { // nobody reads yet
		out.Put(question(uint64(i), sizes[i%len(sizes)]))
	}
	for i := range rounds * len(sizes) {
		checkQuestion(t, to, uint64(i), sizes[i%len(sizes)])
	}
	out.Close()
}

// The end of a connection ends who waits for it, on both sides.
func TestAClosedSocketEndsAll(t *testing.T) {
	t.Parallel()
	a, b := sockets(t)
	from, to := wire.NewFrames(a), wire.NewFrames(b)
	rest := from.Send(slices.Values([]any{question(1, 8<<20)}))
	if rest == nil {
		t.Fatal("8 MiB were written into a socket that nobody reads")
	}
	var wg sync.WaitGroup
	wg.Go(rest)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := to.Receive(&policypb.SessionRequest{}); err == nil {
		t.Error("received from a closed connection")
	}
	if err := from.Receive(&policypb.SessionResponse{}); err == nil {
		t.Error("received from a connection that the other side has closed")
	}
}

// What is no frame is an error, and costs no memory.
func TestBadFramesAreErrors(t *testing.T) {
	t.Parallel()
	long := binary.BigEndian.AppendUint32(nil, wire.MaxMessageBytes+1)
	for name, bytes := range map[string][]byte{
		"cut in the length": {0, 0}, "cut in the message": {0, 0, 0, 9, 1}, "too long": long, "no message": {0, 0, 0, 2, 0xff, 0xff},
	} {
		a, b := sockets(t)
		if _, err := a.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := wire.NewFrames(b).Receive(&policypb.SessionRequest{}); err == nil || err == io.EOF {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// An outbox sends all that many put, each once and those of one in order.
func TestOutboxKeepsOrder(t *testing.T) {
	t.Parallel()
	const putters, each = 8, 500
	for name, inGoroutine := range map[string]bool{"at once": false, "in a goroutine": true} {
		var sent []string
		done := make(chan struct{})
		out := wire.NewOutbox(func(all []string) (rest func()) {
			take := func() {
				if sent = append(sent, all...); len(sent) == putters*each {
					close(done)
				}
			}
			if inGoroutine {
				return take
			}
			take()
			return nil
		}, func([]string) {})
		var wg sync.WaitGroup
		for p := range putters {
			wg.Go(func() {
				for i := range each {
					out.Put(fmt.Sprintf("%d %04d", p, i))
				}
			})
		}
		wg.Wait()
		<-done
		out.Close()
		last := map[string]string{}
		for _, s := range sent {
			if who := s[:1]; s <= last[who] {
				t.Fatalf("%s: %q came after %q", name, s, last[who])
			}
			last[s[:1]] = s
		}
	}
}
