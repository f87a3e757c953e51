package caddymodule_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A refusingServer speaks HTTP/2 by hand. It refuses the first sending of each
// tenth request before it has read its body, and answers all others.
type refusingServer struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup

	mu        sync.Mutex
	conns     []net.Conn
	refused   map[string]bool
	processed map[string]int // how often, by the case
}

func newRefusingServer(t *testing.T) *refusingServer {
	certificates := httptest.NewTLSServer(nil)
	certificates.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &refusingServer{t: t, listener: l, refused: map[string]bool{}, processed: map[string]int{}}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.wg.Go(func() {
				if err := s.serve(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// serve serves one connection.
func (s *refusingServer) serve(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	const window = 1 << 30
	if err := errors.Join(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}), f.WriteWindowUpdate(0, window)); err != nil {
		return err
	}
	cases := make(map[uint32]string) // by stream
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			err = f.WritePing(true, frame.Data)
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				if field.Name == "x-case" {
					cases[id] = field.Value
				}
			}
			if s.refuses(cases[id]) {
				delete(cases, id)
				err = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			}
		}
		if name := cases[id]; err == nil && name != "" && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			err = s.answer(f, id, name)
		}
		if err != nil {
			return err
		}
	}
}

// refuses reports whether this sending of a case is to be refused.
func (s *refusingServer) refuses(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[name] || !strings.HasSuffix(name, "0") {
		return false
	}
	s.refused[name] = true
	return true
}

func (s *refusingServer) answer(f *http2.Framer, id uint32, name string) error {
	s.mu.Lock()
	s.processed[name]++
	s.mu.Unlock()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":status", "200"}, {"content-type", "application/json"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	return errors.Join(
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
		f.WriteData(id, true, []byte(chatAnswer)))
}

// What a provider has refused before it read it is sent again on the same
// connection, with its whole body, and counts as one attempt.
func TestStreamThatWasRefusedIsSentAgain_B149(t *testing.T) {
	s := newRefusingServer(t)
	up := &upstream{name: fmt.Sprintf("p%d", upstreams.Add(1)), Server: &httptest.Server{URL: "https://" + s.listener.Addr().String()}}
	st := serve(t, setup{usher: up.provider("transport http {\ntls_insecure_skip_verify\n}") + model(up) + "attempts 1\n"})
	body := strings.Replace(chatBody, "Hello", strings.Repeat("x", 64<<10), 1)
	const workers, each = 4, 20
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range each {
				st.ask(body, http.StatusOK, header("X-Case", fmt.Sprintf("%d-%d", worker, i)))
			}
		})
	}
	group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.processed) != workers*each || len(s.refused) != workers*each/10 {
		t.Errorf("%d requests were processed, and %d refused first", len(s.processed), len(s.refused))
	}
	for name, times := range s.processed {
		if times != 1 {
			t.Errorf("request %s was processed %d times", name, times)
		}
	}
}
