//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
)

// postgresBin returns the directory of PostgreSQL's programs, of the newest version. If PostgreSQL is missing, it
// installs it.
func postgresBin(ctx context.Context) (string, error) {
	find := func() string {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // fails for a bad pattern only
		if len(found) == 0 {
			if path, err := exec.LookPath("initdb"); err == nil {
				found = []string{path}
			}
		}
		if len(found) == 0 {
			return ""
		}
		slices.Sort(found)
		return filepath.Dir(found[len(found)-1])
	}
	if bin := find(); bin != "" {
		return bin, nil
	}
	if err := apt(ctx, "postgresql"); err != nil {
		return "", err
	}
	if bin := find(); bin != "" {
		return bin, nil
	}
	return "", errors.New("PostgreSQL was installed, but initdb was not found")
}

// apt installs a Debian package. It needs root.
func apt(ctx context.Context, name string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("install %s first: apt-get install %s", name, name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installWithin, fmt.Errorf("apt-get did not end within %v", installWithin))
	defer cancel()
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", name}} {
		if _, err := done(ctx, child.Options{Name: "apt-get " + args[0], Path: "apt-get", Args: args, Env: env}); err != nil {
			return err
		}
	}
	return nil
}

// startPostgres makes a cluster with these settings, starts it, and returns its address when it answers.
func startPostgres(ctx context.Context, s *stage, name string, set ...string) (server *child.Process, url string, err error) {
	bin, err := postgresBin(ctx)
	if err != nil {
		return nil, "", err
	}
	dir := s.Path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("a directory for PostgreSQL: %w", err)
	}
	as := machine.ChildAttributes
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if as, err = give(dir, "postgres"); err != nil {
			return nil, "", err
		}
	}
	_, err = done(ctx, child.Options{
		Name: "initdb", Path: filepath.Join(bin, "initdb"), Dir: dir, Attributes: as,
		Args: []string{"--pgdata", dir, "--auth", "trust", "--username", "river", "--encoding", "UTF8", "--locale", "C"},
	})
	if err != nil {
		return nil, "", err
	}
	addr, err := machine.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(addr)
	// PostgreSQL's manual says to raise these two first: a quarter of a small machine's memory, and enough WAL that no
	// checkpoint comes early.
	args := []string{"-D", dir, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB"}
	for _, setting := range set {
		args = append(args, "-c", setting)
	}
	if server, err = s.Start(child.Options{Name: "postgres", Path: filepath.Join(bin, "postgres"), Args: args, Dir: dir, Attributes: as}); err != nil {
		return nil, "", err
	}
	s.Later(func() error { server.Signal(syscall.SIGINT); return nil }) // or it waits until its clients are gone
	url = "postgres://river@" + addr + "/postgres?sslmode=disable"
	return server, url, until(ctx, "postgres", server, func() bool {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return false
		}
		return conn.Close(ctx) == nil
	})
}

// give gives a directory to a user, and returns the attributes that run a child as that user.
func give(dir, name string) (as func() *syscall.SysProcAttr, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("the user that PostgreSQL runs as: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2, os.Chown(dir, int(uid), int(gid)), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		return nil, fmt.Errorf("hand %s to %s: %w", dir, name, err)
	}
	return func() *syscall.SysProcAttr {
		attributes := machine.ChildAttributes()
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return attributes
	}, nil
}
