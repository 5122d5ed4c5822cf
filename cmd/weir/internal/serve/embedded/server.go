// Package embedded runs a nats-server with JetStream inside the process, with a real listener for producers.
//
// The listener is real because without one neither clustering nor an orderly shutdown works. The server's name is fixed
// because JetStream files its state under it. The worker handles signals, not the server.
//
// A Disk syncs for the server if one sync may serve many callers: see ARCHITECTURE, "One flush for all waiting writes".
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weir/cmd/weir/internal/nats/jsproxy"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options of a Server. All are required except MaxStore, MaxPending, MaxClients, Flushes, Cluster and Auth.
type Options struct {
	Listen     string // host:port, port 0 for any
	Dir        string // of the store
	SyncAlways bool   // fsync before every answer; otherwise every second
	Flushes    bool   // with SyncAlways: the caller flushes by the Server's Disk before every answer, if there is one
	MaxPayload int64  // bytes of a message
	MaxStore   int64  // bytes on disk; 0: four fifths of what is free or used by the store now
	MaxPending int64  // bytes that may wait for one client; 0: 256 MiB
	MaxClients int    // connections of producers, or of all clients without authentication; 0: 65536
	Log        *slog.Logger
	Cluster    Cluster // of a server that is one of several
	Auth       Auth    // which clients may connect, and for what
}

// Cluster makes a Server one of several. The zero value makes it stand alone.
type Cluster struct {
	Name   string   // of the server, and no other's; empty: it stands alone
	Listen string   // host:port for the others
	Routes []string // host:port at which it reaches each of the others
}

// readyWait bounds the start; after a crash the server may read a store of many millions of jobs again.
const readyWait = 10 * time.Minute

// leastStore is the size of the store below which JetStream is useless.
const leastStore = 64 << 20

// Server is a running nats-server.
type Server struct {
	ns       *server.Server
	lock     *dirLock
	maxStore int64
	frozen   <-chan string
	dir      string
	auth     Auth
	gate     *nats.Conn // the gate's; nil without authentication
	disk     *Disk
}

// ErrNotHere reports that the embedded server does not run on this system.
var ErrNotHere = errors.New("the server inside weir runs on Linux, macOS and FreeBSD only: set WEIR_NATS_URL to a nats-server")

// Start runs the server and returns when it accepts clients, or when ctx ends first.
func Start(ctx context.Context, o Options) (*Server, error) {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("WEIR_NATS_LISTEN %q: %w", o.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("WEIR_NATS_LISTEN %q: the port is not a number", o.Listen)
	}
	if number == 0 {
		number = server.RANDOM_PORT
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	maxStore := o.MaxStore
	if maxStore == 0 {
		if maxStore, err = roomFor(o.Dir); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	disk := o.flushed(ctx)
	opts := &server.Options{
		ServerName: "weir", Host: host, Port: number, NoSigs: true,
		JetStream: true, StoreDir: o.Dir, JetStreamMaxStore: maxStore, JetStreamMaxMemory: 64 << 20,
		SyncAlways: o.SyncAlways && disk == nil, SyncInterval: time.Second,
		MaxPayload: int32(min(o.MaxPayload, 64<<20)), MaxPending: o.pending(),
		MaxConn: o.clients() + ownClients, WriteDeadline: writeDeadline, AuthTimeout: signIn.Seconds(),
	}
	if err := o.Cluster.apply(opts); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := o.Auth.admit(opts, o.Dir, o.clients(), o.Log); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded nats-server: %w", err), lock.Close())
	}
	logger := &logger{log: o.Log.With("component", "nats-server"), fatal: make(chan struct{}, 1), frozen: make(chan string, 1)}
	ns.SetLoggerV2(logger, false, false, false)
	go ns.Start()
	s := &Server{ns: ns, lock: lock, maxStore: maxStore, disk: disk, frozen: logger.frozen, dir: o.Dir, auth: o.Auth}
	if !s.up(ctx, logger) {
		s.Shutdown()
		return nil, fmt.Errorf("embedded nats-server did not come up on %s: %s: if another program listens there, end it, or set WEIR_NATS_LISTEN", o.Listen, logger.lastError())
	}
	if err := s.openGate(o.Log); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

// flushed returns the Disk by which the caller syncs, if the caller does so and the file system allows it; nil: the
// server syncs, if at all.
func (o *Options) flushed(ctx context.Context) *Disk {
	if !o.SyncAlways || !o.Flushes || o.Cluster.Name != "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		o.Log.Info("each write is synced by itself, because the system does not report the store's file system", "err", err)
		return nil
	}
	if yes, why := renameIsBarrier(o.Dir, string(mounts)); !yes {
		o.Log.Info("each write is synced by itself, because this file system does not allow one sync for many writes; ext4 does", "dir", o.Dir, "why", why)
		return nil
	}
	if err := prove(ctx, o.Dir); err != nil {
		o.Log.Warn("each write is synced by itself, because this version of the server does not write as weir expects", "err", err)
		return nil
	}
	return newDisk(o.Dir)
}

// Disk returns the Disk by which the caller must sync; nil if the server syncs, or nothing does.
func (s *Server) Disk() *Disk { return s.disk }

// maxPending bounds what waits for one client that does not read: beyond it the client is disconnected.
const maxPending = 256 << 20

// pending returns at least a few messages: a message that does not fit could never be sent.
func (o *Options) pending() int64 {
	if o.MaxPending == 0 {
		return maxPending
	}
	return min(maxPending, max(o.MaxPending, 4*o.MaxPayload))
}

// ownClients is the number of connections beside those of producers: weir's own, and operators'.
const ownClients = 256

// clients returns how many producers may be connected.
func (o *Options) clients() int {
	if o.MaxClients == 0 {
		return server.DEFAULT_MAX_CONNECTIONS
	}
	return o.MaxClients
}

// apply makes the server reach the others only by its own routes, and advertises no other route to it: otherwise
// servers could bypass a link that an operator has put before it to cut it off.
func (c Cluster) apply(opts *server.Options) error {
	if c.Name == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("cluster address %q: %w", c.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("cluster address %q: the port is not a number", c.Listen)
	}
	opts.ServerName, opts.PingInterval, opts.MaxPingsOut = c.Name, pingEvery, mostPings
	opts.Cluster = server.ClusterOpts{
		Name: "weir", Host: host, Port: number, NoAdvertise: true, Advertise: nowhere, PoolSize: 1,
	}
	for _, r := range c.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	return nil
}

// Clients that vanish silently are noticed by pings, as deploy/ configures them: until then jobs are sent to them.
const (
	pingEvery = 5 * time.Second
	mostPings = 2
)

// nowhere is an address on which nothing listens. Servers tell each other the address of a third, and would connect to
// it directly.
const nowhere = "127.0.0.1:9"

// up waits until the server accepts clients. It returns false if the server gave up, ctx ended, or it took too long.
func (s *Server) up(ctx context.Context, l *logger) bool {
	ready := make(chan bool, 1)
	go func() { ready <- s.ns.ReadyForConnections(readyWait) }()
	select {
	case ok := <-ready:
		return ok && s.ns.JetStreamEnabled()
	case <-l.fatal:
	case <-ctx.Done():
	}
	return false
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.ns.Addr().String() }

// ClientURL returns the URL to connect to from this machine.
func (s *Server) ClientURL() string { return s.ns.ClientURL() }

// MaxStore returns how many bytes the store may take.
func (s *Server) MaxStore() int64 { return s.maxStore }

// AwaitFrozen blocks until the server could not write to a stream's files, and returns nil if ctx ends first. Such a
// stream accepts nothing more until the server is restarted, even when there is room again. Only one caller may wait.
func (s *Server) AwaitFrozen(ctx context.Context) error {
	select {
	case why := <-s.frozen:
		return fmt.Errorf("the store cannot be written to, and accepts nothing until weir is restarted: repair the disk of WEIR_DATA_DIR first: %s", why)
	case <-ctx.Done():
		return nil
	}
}

// openGate lets producers read, if the server distinguishes them from operators.
func (s *Server) openGate(log *slog.Logger) error {
	if s.auth == Open {
		return nil
	}
	access, err := s.Access()
	if err != nil {
		return err
	}
	creds, err := filepath.Abs(filepath.Join(s.dir, OperatorCreds))
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	opts := append([]nats.Option{
		nats.Name("weir gate"), nats.MaxReconnects(-1), nats.InProcessServer(s.ns), nats.Timeout(signIn),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("gate of the producers", "err", err) }),
	}, access...)
	if s.gate, err = nats.Connect(s.ClientURL(), opts...); err != nil {
		return fmt.Errorf("gate of the producers: %w", err)
	}
	_, err = jsproxy.Open(s.gate, creds, log)
	return err
}

// Gate returns the connection over which producers read, if the server distinguishes them from operators; nil
// otherwise. Only Shutdown may close it.
func (s *Server) Gate() *nats.Conn { return s.gate }

// ReplyPrefix returns the beginning of the subjects on which producers in a separate account receive replies; empty:
// they have no separate account.
func (s *Server) ReplyPrefix() string {
	if s.auth == Open {
		return ""
	}
	return jsproxy.ReplyPrefix
}

func notWritable(err error) error {
	return fmt.Errorf("data directory: %w: set WEIR_DATA_DIR to one that this user may write to", err)
}

// Shutdown stops the server and returns when its store is closed.
func (s *Server) Shutdown() {
	if s.gate != nil {
		s.gate.Close()
	}
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	_ = s.lock.Close() // the lock goes with the descriptor
}

// roomFor returns four fifths of what the disk has free and the store has already. A full disk makes JetStream
// read-only until a restart, while its own limit only refuses.
func roomFor(dir string) (int64, error) {
	left, err := diskLeft(dir)
	if err != nil {
		return 0, fmt.Errorf("data directory %s: %w", dir, err)
	}
	var used int64
	err = filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // a file that vanishes while it is counted takes no room
		}
		if info, err := entry.Info(); err == nil {
			used += info.Size()
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("data directory %s: %w", dir, err)
	}
	room := (left + used) / 5 * 4
	if room < leastStore {
		return 0, fmt.Errorf("the disk of %s has room for %d MiB, weir needs %d: free some, or set WEIR_DATA_DIR", dir, room>>20, leastStore>>20)
	}
	return room, nil
}
