// Package provider is a provider that answers at once, as a process.
package provider

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// command is the argument with which the executable serves as the provider.
const command = "serve-as-provider"

const (
	answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1764590000,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":100,"total_tokens":300}}`
	event = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764590000,"model":"m","choices":[{"index":0,"delta":` +
		`{"content":"some words "},"finish_reason":null}]}` + "\n\n"

	// events is how many a stream has.
	events = 20
)

// Main serves and does not return if the process was started by [Start].
func Main() {
	if len(os.Args) < 2 || os.Args[1] != command {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		go func() { // ends with the one who started it
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		err = http.Serve(l, http.HandlerFunc(serve))
	}
	fmt.Fprintln(os.Stderr, "provider:", err)
	os.Exit(1)
}

func serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway has left
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, answer, strings.Repeat("words ", 120))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	for range events {
		_, _ = io.WriteString(w, event)
		_ = flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// Start starts the provider, and returns where it listens and what ends it.
func Start() (addr string, end func(), err error) {
	path, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(path, command)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		_ = in.Close()
		_ = cmd.Wait() // it ends with its input
	}
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		end()
		return "", nil, fmt.Errorf("start provider: %w", err)
	}
	return addr, end, nil
}
