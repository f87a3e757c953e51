package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/usherproxy/usher/internal/freeport"
)

// pooler puts PgBouncer, in transaction mode, between replicas and database.
func (h *harm) pooler(ctx context.Context, config map[string]any) (end func() error, err error) {
	end = func() error { return nil }
	port, release, err := freeport.Reserve()
	if err != nil {
		return end, err
	}
	end = release
	path := filepath.Join(h.server.Folder(), "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
ignore_startup_parameters = search_path
`, h.server.Port(), port)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return end, err
	}
	args := []string{"-q", path}
	if os.Getuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...)
	}
	command := exec.Command(pgbouncer(), args...)
	if err := command.Start(); err != nil {
		return end, fmt.Errorf("start PgBouncer (install it: apt-get install -y pgbouncer): %w", err)
	}
	end = func() error {
		err := command.Process.Kill()
		_ = command.Wait() // says that it was killed
		return errors.Join(err, release())
	}
	dsn := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", port)
	config["dsn"] = dsn
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return end, conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return end, errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// pgbouncer returns the path of the program, which Debian keeps from users.
func pgbouncer() string {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path
	}
	return "/usr/sbin/pgbouncer"
}
