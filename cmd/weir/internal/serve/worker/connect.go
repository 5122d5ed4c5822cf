package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/nats/foreign"
	"weir/cmd/weir/internal/nats/jsproxy"
	"weir/cmd/weir/internal/ops/migrate"
	"weir/cmd/weir/internal/serve/embedded"
)

// If a server vanishes silently, for example behind a pulled cable, nats.go notices that after three unanswered pings.
// Until then the connection looks healthy, but the server answers no request.
const (
	pingEvery = 5 * time.Second
	mostPings = 2
)

// ownInbox is the prefix of weir's own inboxes on the embedded server. A job's Weir-Reply-To must not name them.
const ownInbox = "_INBOX.worker"

// connect starts the embedded server, if the settings ask for one, and connects to it or to the external server.
func (w *link) connect(ctx context.Context, file *configFile) error {
	s := w.settings
	url := s.NATSURL.Reveal()
	opts := append(connect.Patience(),
		nats.Name("weir "+s.Instance), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(mostPings),
		nats.ReconnectBufSize(-1),   // publishing without a connection is an error; nothing is buffered
		nats.IgnoreAuthErrorAbort(), // refused credentials may be mended later
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			w.log.Warn("nats", "subject", subject, "err", err)
			w.denied.Note(err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				w.log.Warn("lost the connection to NATS; trying again", "err", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { w.log.Info("connected to NATS again") }),
		nats.ReconnectErrHandler(w.whyNotConnected()))
	if s.Embedded() {
		server, err := embedded.Start(ctx, embedded.Options{
			Listen: s.NATSListen, Dir: s.DataDir, SyncAlways: s.Durability == environment.DurabilityAlways, Flushes: true,
			MaxPayload: connect.MaxPayload(file.configured()), MaxPending: softMemory(s.Memory) / 4, Log: w.log,
			MaxClients: w.clients(s), Auth: serverAuth(s.NATSAuth),
		})
		if errors.Is(err, embedded.ErrNotHere) {
			return cli.Usage(err)
		} else if err != nil {
			return err
		}
		w.server = server
		w.onStop("embedded nats-server", func() error { server.Shutdown(); return nil })
		url = server.ClientURL()
		access, err := server.Access()
		if err != nil {
			return err
		}
		// Producers can see the inboxes where weir receives acknowledgements, so no job may name one in Weir-Reply-To.
		opts, w.replyPrefix = append(append(opts, access...), nats.CustomInboxPrefix(ownInbox)), server.ReplyPrefix()
		w.log.Log(ctx, levelAlways, "listening", "what", "nats", "addr", server.Addr())
	} else {
		opts = append(opts, connect.Options(s)...)
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return cli.Unreachable(connect.Explain(s.NATSURL.String(), "the server", err))
	}
	w.natsURL, w.natsOptions = url, opts
	if w.server == nil {
		nc = w.asOperator(ctx, nc)
	}
	w.nc = nc
	w.onStop("nats connection", w.keepOpen(nc, "the connection of this replica"))
	if w.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(15*time.Second)); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	w.js = stream.FromLeader(w.js)
	if w.server != nil {
		if gate := w.server.Gate(); gate != nil {
			w.keepOpen(gate, "the connection of the producers' gate")
		}
		w.lowerGo(func() error { return w.server.BoundBacklog(w.base, softMemory(s.Memory)/8, w.log, nc) })
		if disk := w.server.Disk(); disk != nil {
			w.js = stream.OnDisk(w.js, disk)
			w.lowerGo(func() error { return w.whileDiskTakes(disk) })
		}
		w.room = w.server.MaxStore()
		return migrate.RefuseElsewhere(ctx, w.js)
	}
	check := connect.Check{Conn: nc, JetStream: w.js, Denied: &w.denied, Settings: s, Config: file.configured(), Log: w.log}
	if w.room, err = check.Run(ctx); err != nil {
		return err
	}
	if check.MayGate() && w.replyPrefix == "" { // on a server embedded in another weir, that weir answers
		readers, err := jsproxy.Open(nc, "", w.log)
		if err != nil {
			return err
		}
		w.onStop("gate of the readers", readers.Close)
	}
	return migrate.RefuseElsewhere(ctx, w.js)
}

// whyNotConnected returns a handler that logs why reconnecting fails. The reason may need an operator, for example an
// expired certificate or refused credentials. The handler logs a reason again only if it has logged another one since.
func (w *link) whyNotConnected() nats.ConnErrHandler {
	var last atomic.Pointer[string] // shared, because all connections have the same options
	return func(nc *nats.Conn, err error) {
		why := connect.Explain(w.settings.NATSURL.String(), "the server", err).Error()
		if nc.IsConnected() {
			return
		}
		if before := last.Swap(&why); before != nil && *before == why {
			return
		}
		w.log.Error("still no connection to NATS: jobs wait, and nothing is called", "err", why)
	}
}

// clientBytes is the memory of an idle connection to the embedded server: two goroutines with their buffers, and the
// socket. 8,000 connections took 51 KiB each.
const clientBytes = 52 << 10

// clients returns how many producers may connect to the embedded server. By default they take at most a fourth of the
// memory, and a fourth of the files that the process may open. If the number is configured, only the limit of files can
// lower it.
func (w *link) clients(s *environment.Settings) int {
	most := int(openFiles() / 4)
	if s.NATSConnections > most {
		w.log.Warn("fewer producers may be connected than WEIR_NATS_CONNECTIONS says: the store needs files as well; raise the limit of open files (ulimit -n, LimitNOFILE)",
			"asked", s.NATSConnections, "connections", most, "open_files", openFiles())
	}
	if s.NATSConnections > 0 {
		return min(s.NATSConnections, most)
	}
	return min(int(min(max(softMemory(s.Memory)/4/clientBytes, 64), 64<<10)), most)
}

// mostFiles is the number of open files that weir counts with if the process has no limit.
const mostFiles = 1 << 20

// visitorBytes is the memory of a waiting HTTP connection: a goroutine, its buffers, and the socket.
const visitorBytes = 16 << 10

// visitors returns how many connections the HTTP server may have. They take at most a sixteenth of the memory and a
// fourth of the files that the process may open.
func visitors(s *environment.Settings) int {
	return min(int(min(max(softMemory(s.Memory)/16/visitorBytes, 256), 16<<10)), int(openFiles()/4))
}

// serverAuth returns which clients the embedded server admits.
func serverAuth(a environment.NATSAuth) embedded.Auth {
	switch a {
	case environment.AuthOpen:
		return embedded.Open
	case environment.AuthRequired:
		return embedded.Required
	default:
		return embedded.Operators
	}
}

// asOperator returns the connection to use with an external server, which may be embedded in another weir. If that weir
// runs on this machine and separates producers from operators, asOperator connects again with the operators'
// credentials from that weir's data directory.
func (w *link) asOperator(ctx context.Context, nc *nats.Conn) *nats.Conn {
	inside := connect.AskInside(ctx, nc, &w.denied)
	w.replyPrefix = inside.ReplyPrefix
	own := connect.Found(w.settings, inside)
	if own == nil {
		return nc
	}
	opts := append(slices.Clone(w.natsOptions), own)
	operator, err := nats.Connect(w.natsURL, opts...)
	if err != nil {
		w.log.Warn("the operators' credentials of the server do not work", "file", inside.OperatorCreds, "err", err)
		return nc
	}
	nc.Close()
	w.natsOptions = opts
	return operator
}

// refuseForeign fails if a foreign stream takes jobs. If the stream is in the embedded server, no client can reach it
// while weir is stopped, so the error says how to change it.
func (w *Worker) refuseForeign(ctx context.Context) error {
	w.foreign = foreign.NewWatch(w.js, w.settings.Instance, w.registry, w.log)
	err := w.foreign.Refuse(ctx, &w.denied)
	if err == nil || w.server == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w. The stream is in weir's own store: run `weir nats-server --dir %s`, change or remove the stream there, stop that server, and start weir again",
		err, w.settings.DataDir)
}

// whileDiskTakes ends the worker when the disk refuses a write, because weir must answer nothing from then on.
func (w *link) whileDiskTakes(disk *embedded.Disk) error {
	select {
	case err := <-disk.Broken():
		return fmt.Errorf("%w: weir takes no more jobs and makes no more calls: repair the disk, then start weir again", err)
	case <-w.base.Done():
		return nil
	}
}
