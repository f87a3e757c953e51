package pluginhost

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// An identity is whom a process runs as.
type identity struct {
	user, group uint32
	groups      []uint32 // besides group
}

// prepare sets up what the process may do: whom it runs as, where, and what.
func (r *cmdRunner) prepare(spec Spec) error {
	if err := checkPrivate(r.socketDir); err != nil {
		return err
	}
	if err := r.setDir(spec); err != nil {
		return err
	}
	as, err := identify(spec.User, spec.Group)
	if err != nil {
		return err
	}
	if r.as = as; as != nil {
		if err := os.Chown(r.socketDir, int(as.user), int(as.group)); err != nil {
			return fmt.Errorf("user and group need root: %w", err)
		}
	}
	if spec.Checksum == "" {
		return nil
	}
	return r.pin(spec)
}

// checkPrivate reports an error if others may enter the directory in which the
// plugin makes its socket.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("the directory for the socket: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("the directory for the socket, %s, has the mode %o: others must not enter it", dir, info.Mode().Perm())
	}
	return nil
}

// setDir sets the working directory. A relative path of the executable goes on
// to mean what it means to the host.
func (r *cmdRunner) setDir(spec Spec) error {
	if spec.Dir == "" {
		return nil
	}
	info, err := os.Stat(spec.Dir)
	if err != nil {
		return fmt.Errorf("workdir: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("workdir: %s is no directory", spec.Dir)
	}
	r.cmd.Dir = spec.Dir
	r.cmd.Path, err = filepath.Abs(r.cmd.Path)
	return err
}

// pin lets the process run a copy of the executable that has the checksum.
func (r *cmdRunner) pin(spec Spec) error {
	copied, sum, err := pin(r.cmd.Path)
	if err != nil {
		return err
	}
	if got, want := hex.EncodeToString(sum), strings.ToLower(spec.Checksum); got != want {
		_ = copied.Close() // it is not used
		return fmt.Errorf("its checksum is sha256:%s, and not sha256:%s as configured", got, want)
	}
	r.pinned = copied
	runPinned(r.cmd, copied)
	return nil
}

// identify returns the identity of a user and a group, by names or numbers, or
// nil if there are none.
func identify(userName, groupName string) (*identity, error) {
	if userName == "" && groupName == "" {
		return nil, nil
	}
	as := &identity{user: uint32(os.Geteuid()), group: uint32(os.Getegid())}
	if userName != "" {
		u, err := lookUp(userName, user.Lookup, user.LookupId)
		if err != nil {
			return nil, err
		}
		if as.user, err = number(u.Uid); err != nil {
			return nil, err
		}
		if as.group, err = number(u.Gid); err != nil {
			return nil, err
		}
		ids, err := u.GroupIds()
		if err != nil && groupName == "" {
			return nil, fmt.Errorf("groups of user %s: %w", userName, err)
		}
		for _, id := range ids {
			n, err := number(id)
			if err != nil {
				return nil, err
			}
			as.groups = append(as.groups, n)
		}
	}
	if groupName != "" {
		g, err := lookUp(groupName, user.LookupGroup, user.LookupGroupId)
		if err != nil {
			return nil, err
		}
		as.groups = nil // that one alone
		if as.group, err = number(g.Gid); err != nil {
			return nil, err
		}
	}
	return as, nil
}

// lookUp looks up a user or a group by its name, or by its number.
func lookUp[T any](name string, byName, byNumber func(string) (*T, error)) (*T, error) {
	found, err := byName(name)
	if err == nil {
		return found, nil
	}
	if _, numeric := strconv.ParseUint(name, 10, 32); numeric == nil {
		found, err2 := byNumber(name)
		return found, err2
	}
	return nil, err
}

func number(id string) (uint32, error) {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%q is no number of a user or group", id), err)
	}
	return uint32(n), nil
}
