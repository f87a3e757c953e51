package pgserver

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

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

// roomy is more than a server needs, of which there may be some at a time.
const roomy = 2 << 30

// memory returns a folder in memory, or "" for the usual one. That of a container may
// be too small.
func memory() string {
	const folder = "/dev/shm"
	if free(folder) >= roomy {
		return folder
	}
	return ""
}

// unprivileged gives the folder to a user that may run a server, which root may
// not.
func (s *Server) unprivileged() (*syscall.SysProcAttr, error) {
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
