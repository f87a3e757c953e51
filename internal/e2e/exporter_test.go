package e2e_test

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A backend for traces that takes connections and never answers costs requests
// nothing, and holds up the end of usher for a bounded time.
func TestAHungBackendForTracesHoldsNobodyUp_B142(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hung.Close() })
	connected := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := hung.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}()
	p := startProvider(t, twoKeys(2, 2, ""))
	u := startUsher(t, setup{usher: p.upstream(2, 2), env: append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + hung.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_BSP_SCHEDULE_DELAY=50",
	}, keyEnv...)})
	c := newClient(u.url)
	send := func() {
		if err := c.begin(t, ask{tag: "traced"}).wait(t, longTime).ok(); err != nil {
			t.Error(err)
		}
	}
	send()
	select {
	case <-connected:
	case <-time.After(longTime):
		t.Fatal("nothing was exported")
	}
	for range 20 {
		send()
	}
	u.signal(t, syscall.SIGTERM)
	select {
	case <-u.ended:
	case <-time.After(longTime):
		t.Fatal("usher has not ended")
	}
	if strings.Contains(u.log.String(), "panic") {
		t.Error(u.log.String())
	}
}
