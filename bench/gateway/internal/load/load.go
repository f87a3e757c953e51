// Package load asks a gateway over connections that each send their next
// request when the last one was answered. Its client is a small one of its own,
// to leave the processors to what is measured.
package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Target is what is asked, and how.
type Target struct {
	Addr   string // host:port
	Path   string
	Model  string
	Stream bool
	Bytes  int // of the body, about
}

// A Result is what came of it.
type Result struct {
	Requests int
	Seconds  float64
	P50, P99 time.Duration
}

// timeout is how long an answer may take.
const timeout = 30 * time.Second

// Closed loads a target over connections for as long as measure says, after a
// time that does not count. The function began is called when it begins to count.
func Closed(t Target, connections int, warmUp, measure time.Duration, began func()) (Result, error) {
	request, err := t.request()
	if err != nil {
		return Result{}, err
	}
	start := time.Now().Add(warmUp)
	end := start.Add(measure)
	latencies, errs := make([][]time.Duration, connections), make([]error, connections)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() { latencies[i], errs[i] = ask(t, request, start, end) })
	}
	time.Sleep(time.Until(start))
	began()
	wg.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return Result{}, err
		}
	}
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return Result{}, fmt.Errorf("no answer within %s", measure)
	}
	slices.Sort(all)
	return Result{
		Requests: len(all), Seconds: took.Seconds(),
		P50: all[len(all)/2], P99: all[min(len(all)-1, len(all)*99/100)],
	}, nil
}

// ask asks over one connection until end, and returns how long the answers
// took that were asked for after start.
func ask(t Target, request []byte, start, end time.Time) (latencies []time.Duration, err error) {
	conn, err := net.Dial("tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing more is to come
	r := bufio.NewReader(conn)
	for now := time.Now(); now.Before(end); {
		if err := conn.SetDeadline(now.Add(timeout)); err != nil {
			return nil, err
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		if err := readAnswer(r, t.Stream); err != nil {
			return nil, err
		}
		asked := now
		now = time.Now()
		if asked.After(start) {
			latencies = append(latencies, now.Sub(asked))
		}
	}
	return latencies, nil
}

func (t Target) request() ([]byte, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(map[string]any{
		"model": t.Model, "stream": t.Stream, "messages": []message{{"user", strings.Repeat("words ", t.Bytes/6)}},
	})
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		t.Path, t.Addr, len(body))
	return append([]byte(head), body...), nil
}

// readAnswer reads one answer, which must be one of success and complete.
func readAnswer(r *bufio.Reader, stream bool) error {
	status, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		first := string(status)
		rest, _ := r.Peek(r.Buffered()) // for the one who looks for the fault
		return fmt.Errorf("answer %q %q", first, rest)
	}
	length, chunked := -1, false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if !ok {
			break
		}
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	switch {
	case chunked:
		return readChunks(r, stream)
	case length < 0:
		return fmt.Errorf("an answer without its length")
	}
	_, err = r.Discard(length)
	return err
}

// readChunks reads a body in chunks, whose last event must be the one that ends
// a stream.
func readChunks(r *bufio.Reader, stream bool) error {
	done := !stream
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if stream && n > 0 {
			chunk, err := r.Peek(int(min(n, int64(r.Size()))))
			if err != nil {
				return err
			}
			done = done || bytes.Contains(chunk, []byte("[DONE]"))
		}
		if _, err := r.Discard(int(n) + len("\r\n")); err != nil {
			return err
		}
		if n == 0 && !done {
			return fmt.Errorf("a stream without its end")
		}
		if n == 0 {
			return nil
		}
	}
}
