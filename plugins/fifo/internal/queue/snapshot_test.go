package queue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/usherproxy/usher/plugins/fifo/internal/queue"
)

// Random histories again, in which the queue is replaced by a copy of it, made
// of its snapshot, before every step.
func TestQueueGoesOnFromItsSnapshot(t *testing.T) {
	t.Parallel()
	histories := 50
	if testing.Short() {
		histories = 20
	}
	for seed := range uint64(histories) {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := newHistory(t, seed)
			for range 150 {
				h.reload()
				h.advance()
			}
			h.drain()
		}) {
			return
		}
	}
}

func (h *history) reload() {
	data, err := json.Marshal(h.queue.Snapshot())
	if err != nil {
		h.t.Fatal(err)
	}
	if h.queue, err = queue.Load(data); err != nil {
		h.t.Fatal(err)
	}
	again, err := json.Marshal(h.queue.Snapshot())
	if err != nil || !bytes.Equal(again, data) {
		h.t.Fatalf("snapshot of a copy = %s, %v, want %s", again, err, data)
	}
	for i, p := range h.pairs {
		h.pairs[i].ticket = h.queue.Find(p.ticket.ID(), p.ticket.Attempt())
	}
}
