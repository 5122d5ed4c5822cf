// Package embedded runs a nats-server with JetStream inside the process, with a real listener for producers.
//
// The listener is real, because clustering and an orderly shutdown of the server need one. The server's name is fixed,
// because JetStream files its state under that name. The worker handles signals; the server does not.
//
// If one sync may serve many callers, a Disk syncs instead of the server. See ARCHITECTURE.md, "One flush for all
// waiting writes".
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

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/nats/jsproxy"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options of a Server. All are required except Monitor, MaxStore, MaxPending, MaxClients, Flushes, Cluster and Auth.
type Options struct {
	Listen     string // host:port, port 0 for any
	Monitor    string // host:port of the server's own counts over HTTP, port 0 for any; "": no such listener
	Dir        string // directory of the store
	SyncAlways bool   // every write is synced before it is acknowledged; if false, the server syncs every second
	Flushes    bool   // with SyncAlways: if the Server has a Disk, the caller flushes with it before every answer
	MaxPayload int64  // the most bytes of a message
	MaxStore   int64  // the most bytes on disk; 0: four fifths of the bytes that are free or used by the store
	MaxPending int64  // the most bytes that may wait for one client; 0: 256 MiB
	MaxClients int    // the most connections of producers, or of all clients if Auth is Open; 0: 65536
	Log        *slog.Logger
	Cluster    Cluster // for a server of a cluster
	Auth       Auth    // which clients may connect, and what they may do
}

// Cluster makes a Server part of a cluster. The zero value makes it stand alone.
type Cluster struct {
	Name   string   // the server's name, unique in the cluster; empty: the server stands alone
	Listen string   // host:port on which the other servers connect
	Routes []string // host:port of each other server
}

// readyWait bounds how long the server may take to start: after a crash it may have to read a store of many millions of
// jobs again.
const readyWait = 10 * time.Minute

// leastStore is the smallest room for a store, in bytes, with which Start accepts a disk.
const leastStore = 64 << 20

// Server is a running nats-server.
type Server struct {
	ns       *server.Server
	lock     *dirLock
	maxStore int64
	frozen   <-chan string
	dir      string
	auth     Auth
	gate     *nats.Conn // the connection of the gate; nil if Auth is Open
	disk     *Disk
}

// ErrNotHere reports that the embedded server does not support this operating system.
var ErrNotHere = errors.New("the server inside weir runs on Linux, macOS and FreeBSD only: set WEIR_NATS_URL to a nats-server")

// Start starts the server and blocks until it accepts clients. It fails if ctx ends first.
func Start(ctx context.Context, o Options) (*Server, error) {
	host, port, err := address(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("WEIR_NATS_LISTEN %w", err)
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
		ServerName: connect.InsideName, Host: host, Port: port, NoSigs: true,
		JetStream: true, StoreDir: o.Dir, JetStreamMaxStore: maxStore, JetStreamMaxMemory: 64 << 20,
		SyncAlways: o.SyncAlways && disk == nil, SyncInterval: time.Second,
		MaxPayload: int32(min(o.MaxPayload, 64<<20)), MaxPending: o.pending(),
		MaxConn: o.clients() + ownClients, WriteDeadline: writeDeadline, AuthTimeout: signIn.Seconds(),
	}
	if err := errors.Join(o.Cluster.apply(opts), o.monitored(opts)); err != nil {
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

// address divides host:port. Port 0 becomes the server's word for any port.
func address(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("%q: %w", listen, err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		return "", 0, fmt.Errorf("%q: the port is not a number", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// monitored makes the server tell its own counts over HTTP, if Monitor asks for it.
func (o *Options) monitored(opts *server.Options) (err error) {
	if o.Monitor == "" {
		return nil
	}
	if opts.HTTPHost, opts.HTTPPort, err = address(o.Monitor); err != nil {
		return fmt.Errorf("monitoring address %w", err)
	}
	return nil
}

// flushed returns the Disk with which the caller syncs, if the caller flushes and the file system allows it. It returns
// nil if the server must sync by itself, or if nothing is synced before an answer.
func (o *Options) flushed(ctx context.Context) *Disk {
	if !o.SyncAlways || !o.Flushes || o.Cluster.Name != "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		o.Log.Info("cannot share one disk sync among several writes, because the system does not report the store's file system; each write is synced separately", "err", err)
		return nil
	}
	if yes, why := renameIsBarrier(o.Dir, string(mounts)); !yes {
		o.Log.Info("cannot share one disk sync among several writes, because this file system does not allow it, as ext4 does; each write is synced separately", "dir", o.Dir, "why", why)
		return nil
	}
	if err := prove(ctx, o.Dir); err != nil {
		o.Log.Warn("cannot share one disk sync among several writes, because weir could not verify that this nats-server version writes files as weir expects; each write is synced separately", "err", err)
		return nil
	}
	return newDisk(o.Dir)
}

// Disk returns the Disk with which the caller must sync, nil if the caller need not sync.
func (s *Server) Disk() *Disk { return s.disk }

// maxPending bounds the bytes that wait for one client that does not read. If more bytes wait, the server disconnects
// the client.
const maxPending = 256 << 20

// pending returns the most bytes that may wait for one client. That has room for four of the largest messages, because
// a message that does not fit could never be sent.
func (o *Options) pending() int64 {
	if o.MaxPending == 0 {
		return maxPending
	}
	return min(maxPending, max(o.MaxPending, 4*o.MaxPayload))
}

// ownClients is the number of connections for weir itself and for operators, in addition to those of producers.
const ownClients = 256

// clients returns how many producers may connect.
func (o *Options) clients() int {
	if o.MaxClients == 0 {
		return server.DEFAULT_MAX_CONNECTIONS
	}
	return o.MaxClients
}

// apply makes the server connect to the other servers only by its own routes, and advertise no address. Otherwise
// servers could bypass a link that an operator has put between them.
func (c Cluster) apply(opts *server.Options) error {
	if c.Name == "" {
		return nil
	}
	host, port, err := address(c.Listen)
	if err != nil {
		return fmt.Errorf("cluster address %w", err)
	}
	opts.ServerName, opts.PingInterval, opts.MaxPingsOut = c.Name, pingEvery, mostPings
	opts.Cluster = server.ClusterOpts{
		Name: "weir", Host: host, Port: port, NoAdvertise: true, Advertise: nowhere, PoolSize: 1,
	}
	for _, r := range c.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	return nil
}

// The server notices by pings that a client vanished silently. Until then it sends messages to that client. The values
// are the same as in deploy/.
const (
	pingEvery = 5 * time.Second
	mostPings = 2
)

// nowhere is an address on which nothing listens. The server advertises it instead of its own address. Servers tell
// each other the advertised addresses, and would otherwise connect directly.
const nowhere = "127.0.0.1:9"

// up blocks until the server accepts clients. It returns false if the server gave up, ctx ended, or readyWait has
// passed.
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

// MonitorURL returns the URL at which the server tells its own counts, or "" without Options.Monitor.
func (s *Server) MonitorURL() string {
	if at := s.ns.MonitorAddr(); at != nil {
		return "http://" + at.String()
	}
	return ""
}

// MaxStore returns the most bytes that the store may take.
func (s *Server) MaxStore() int64 { return s.maxStore }

// AwaitFrozen blocks until the server fails to write to a stream's files, and returns the error. It returns nil if ctx
// ends first. A stream with such a failure accepts nothing until the server is restarted, even if there is room again.
// Only one goroutine may call AwaitFrozen.
func (s *Server) AwaitFrozen(ctx context.Context) error {
	select {
	case why := <-s.frozen:
		return fmt.Errorf("the store cannot be written to, and accepts nothing until weir is restarted: repair the disk of WEIR_DATA_DIR first: %s", why)
	case <-ctx.Done():
		return nil
	}
}

// openGate opens the gate, through which producers read. It does nothing if the server does not separate producers from
// operators.
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

// Gate returns the connection of the gate, through which producers read; nil if Auth is Open. Only Shutdown may close
// it.
func (s *Server) Gate() *nats.Conn { return s.gate }

// ReplyPrefix returns the prefix of the subjects on which producers in a separate account receive replies; "" if they
// have no separate account.
func (s *Server) ReplyPrefix() string {
	if s.auth == Open {
		return ""
	}
	return jsproxy.ReplyPrefix
}

func notWritable(err error) error {
	return fmt.Errorf("data directory: %w: set WEIR_DATA_DIR to one that this user may write to", err)
}

// Shutdown stops the server and blocks until its store is closed.
func (s *Server) Shutdown() {
	if s.gate != nil {
		s.gate.Close()
	}
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	_ = s.lock.Close() // closing the descriptor releases the lock
}

// roomFor returns four fifths of the bytes that are free on the disk or used by the store. The store gets a limit below
// the disk's size, because JetStream only refuses writes at its own limit, while a full disk makes it read-only until a
// restart.
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
