// Package pgserver runs PostgreSQL servers that live as long as their process, for
// tests and benchmarks.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/freeport"
)

// A Server keeps its data in a folder of its own. Its methods must not be called
// at the same time.
type Server struct {
	folder   string
	bin      string
	port     int
	release  func() error // of the port
	settings []string
	attr     *syscall.SysProcAttr
	process  *os.Process
	ended    chan struct{} // closed when the process has ended
	end      error         // how, once it has
}

// startTimeout is generous: a machine that runs many tests is slow.
const startTimeout = 2 * time.Minute

// DSN says how to reach the server, as a user who may do anything.
func (s *Server) DSN() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", s.port)
}

// Port is the one that the server listens on, on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID is the number of the server's first process; its sessions are below it.
func (s *Server) PID() int { return s.process.Pid }

// Folder is the one of the server. What is written into it goes with the server.
func (s *Server) Folder() string { return s.folder }

// Start starts a server with settings such as "fsync=off". It ends with this
// process, whatever ends it.
func Start(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s, err := place(bin, settings)
	if err != nil {
		return nil, err
	}
	return s.fill("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync")
}

// Standby starts a server that follows s, with a copy of its data. The caller has to stop
// both.
func (s *Server) Standby() (*Server, error) {
	standby, err := place(s.bin, s.settings)
	if err != nil {
		return nil, err
	}
	return standby.fill("pg_basebackup", "-D", standby.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "postgres",
		"-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// place returns a server that has a folder and a port, and no data yet.
func place(bin string, settings []string) (s *Server, err error) {
	s = &Server{bin: bin, settings: settings}
	if s.folder, err = os.MkdirTemp(memory(), "usher-postgres-"); err != nil {
		return nil, err
	}
	if s.attr, err = s.unprivileged(); err != nil {
		return nil, err
	}
	if s.port, s.release, err = freeport.Reserve(); err != nil {
		return nil, err
	}
	return s, nil
}

// fill lets a program make the data, and starts the server.
func (s *Server) fill(program string, args ...string) (*Server, error) {
	command := exec.Command(filepath.Join(s.bin, program), args...)
	command.Dir, command.SysProcAttr = s.folder, s.attr
	if out, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, out)
	}
	if err := s.run(); err != nil {
		return nil, err
	}
	return s, s.Await()
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

func (s *Server) log() string { return filepath.Join(s.folder, "log") }

// run starts the server, which on Linux ends with this process whatever ends it.
// The kernel looks at the thread that has started it, so that one stays.
func (s *Server) run() error {
	args := []string{
		"-D", s.data(), "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_wal_size=256MB", // the folder may be in memory
	}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	command := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	attr := *s.attr
	endWithUs(&attr)
	command.Dir, command.SysProcAttr = s.folder, &attr
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own
	command.Stderr = log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			s.end = command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.ended = command.Process, ended
	return nil
}

// Halt ends the server at once, as a crash would. Its data stays, for Continue.
func (s *Server) Halt() error {
	if err := s.process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.ended
	if !isExit(s.end) {
		return s.end
	}
	return nil
}

// Continue starts the server again after Halt, and returns when it answers.
func (s *Server) Continue() error { return errors.Join(s.run(), s.Await()) }

// isExit reports whether a process has ended, in whatever way.
func isExit(err error) bool {
	_, ok := errors.AsType[*exec.ExitError](err)
	return ok
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error { return errors.Join(s.Halt(), os.RemoveAll(s.folder), s.release()) }

// Await returns when the server answers.
func (s *Server) Await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			log, _ := os.ReadFile(s.log()) // the rest is worth saying without it
			return fmt.Errorf("postgres has ended: %w: %s", s.end, log)
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
