package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server keeps its data in a folder of its own.
type server struct {
	folder string
	port   int
	stopIt func() error
}

// startTimeout is generous: a machine that runs many tests is slow.
const startTimeout = 2 * time.Minute

func (s *server) dsn() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", s.port)
}

func start() (*server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &server{}
	if s.folder, err = os.MkdirTemp(memory(), "usher-postgres-"); err != nil {
		return nil, err
	}
	attr, err := s.unprivileged()
	if err != nil {
		return nil, err
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	data := filepath.Join(s.folder, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = s.folder, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	command := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=400")
	command.Dir, command.SysProcAttr = s.folder, attr
	if err := s.run(command); err != nil {
		return nil, err
	}
	return s, s.await()
}

// run starts the server, which on Linux ends with this process whatever ends it.
// The kernel looks at the thread that has started it, so that one stays.
func (s *server) run(command *exec.Cmd) error {
	endWithUs(command.SysProcAttr)
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- command.Start()
		ended <- command.Wait()
	}()
	if err := <-started; err != nil {
		return err
	}
	s.stopIt = func() error {
		if err := command.Process.Signal(syscall.SIGQUIT); err != nil {
			return err
		}
		if err := <-ended; !isExit(err) {
			return err
		}
		return nil
	}
	return nil
}

// isExit reports whether a process has ended, in whatever way.
func isExit(err error) bool {
	_, ok := errors.AsType[*exec.ExitError](err)
	return ok
}

func (s *server) stop() error { return errors.Join(s.stopIt(), os.RemoveAll(s.folder)) }

// await returns when the server answers.
func (s *server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.dsn())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// binaries returns the folder of the programs, of the newest version.
func binaries() (string, error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(folders, func(a, b string) int { return version(b) - version(a) })
	for _, folder := range append([]string{os.Getenv("PGBIN")}, folders...) {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); folder != "" && err == nil {
			return folder, nil
		}
	}
	return "", errors.New("there is none in $PGBIN and /usr/lib/postgresql/*/bin; install it: apt-get install -y postgresql")
}

func version(folder string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder))) // 0 if it is no number
	return n
}

// memory returns a folder in memory, or "" for the usual one.
func memory() string {
	if _, err := os.Stat("/dev/shm"); err == nil {
		return "/dev/shm"
	}
	return ""
}

// unprivileged gives the folder to a user that may run a server, which root may
// not.
func (s *server) unprivileged() (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr, os.Chown(s.folder, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
