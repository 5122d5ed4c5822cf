package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/embedded"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// mover carries out one move.
type mover struct {
	from, to *connect.Connection
	inside   bool // this process runs the source's server, so no other process uses the source's data
	replicas int
	talk     func(format string, args ...any)
	note     note
	streams  []*jetstream.StreamInfo // the source's streams at the beginning of the move
}

// report is what --json prints.
type report struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Streams  int    `json:"streams"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Replicas int    `json:"replicas"`
}

// Options of a move.
type Options struct {
	From      string // a data directory of weir, or the address of a server
	FromCreds string // a credentials file for From if that is an address
	To        string // the new server's address; "": from the environment
	Abandon   bool   // take back a move that is not done
	Confirm   func(question string) error
	As        cli.Format
	Out, Talk io.Writer
}

// Run moves all of weir to another server, or continues an interrupted move. It blocks until everything is copied and
// compared. After an interruption, call Run again.
func Run(ctx context.Context, f Options) error {
	m, stop, err := openMove(ctx, f)
	if err != nil {
		return err
	}
	defer stop()
	if f.Abandon {
		return m.abandon(ctx)
	}
	done, err := m.check(ctx)
	if err != nil || done {
		return err
	}
	told := report{From: m.from.At, To: m.to.At, Streams: len(m.streams), Replicas: m.replicas}
	for _, s := range m.streams {
		told.Messages += s.State.Msgs
		told.Bytes += s.State.Bytes
	}
	err = f.Confirm(fmt.Sprintf("Move %s with %s (%s) from %s to %s, with %s?", cli.Count(told.Streams, "stream"), cli.Count(told.Messages, "message"),
		grammar.FormatSize(int64(told.Bytes)), m.from.At, m.to.At, cli.Count(m.replicas, "replica")))
	if err != nil {
		return err
	}
	if err := m.run(ctx); err != nil {
		return err
	}
	if f.As == cli.AsJSON {
		return cli.PrintJSON(f.Out, told)
	}
	_, err = fmt.Fprintf(f.Out, "moved %s with %s to %s: start weir there (WEIR_NATS_URL); %s is kept, and weir will not start on it\n",
		cli.Count(told.Streams, "stream"), cli.Count(told.Messages, "message"), m.to.At, m.from.At)
	return err
}

// openMove reads the settings and connects to both ends.
func openMove(ctx context.Context, f Options) (m *mover, stop func(), err error) {
	settings, err := environment.ReadFor(f.To)
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	if settings.Embedded() || f.From == "" {
		return nil, nil, cli.Usage(errors.New("name both servers: --from with a data directory or an address, --to or WEIR_NATS_URL with the new server's address"))
	}
	m = &mover{replicas: settings.Replicas, talk: func(format string, args ...any) {
		_, _ = fmt.Fprintf(f.Talk, "weir: "+format+"\n", args...) // an error of the terminal does not matter
	}}
	stopSource, err := m.openSource(ctx, f, settings)
	if err != nil {
		return nil, nil, err
	}
	if m.to, err = connect.DialAs(settings); err != nil {
		stopSource()
		return nil, nil, err
	}
	m.note = note{From: m.from.At, To: m.to.At, Who: cli.User(), At: time.Now().UTC()}
	return m, func() { m.to.Close(); stopSource() }, nil
}

// openSource connects to the source. If the source is a directory, it starts a server there.
func (m *mover) openSource(ctx context.Context, f Options, settings *environment.Settings) (stop func(), err error) {
	var opts []nats.Option
	if inbox := settings.NATSInbox; inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	url, at := f.From, "the server at --from"
	stop = func() {}
	if strings.Contains(f.From, "://") {
		if f.FromCreds != "" {
			opts = append(opts, nats.UserCredentials(f.FromCreds))
		}
		opts = append(opts, connect.Secured(settings)...)
	} else {
		if _, err := os.Stat(filepath.Join(f.From, "jetstream")); err != nil {
			return nil, cli.NotFound(fmt.Errorf("%s is not a data directory of weir: it has no files of a nats-server", f.From))
		}
		if err := refuseCopied(f); err != nil {
			return nil, err
		}
		server, err := embedded.Start(ctx, embedded.Options{
			Listen: "127.0.0.1:0", Dir: f.From, SyncAlways: true, MaxPayload: connect.MaxPayload(nil), Log: slog.New(slog.DiscardHandler),
			Auth: embedded.Required,
		})
		if err != nil {
			return nil, cli.Refused(err)
		}
		access, err := server.Access()
		if err != nil {
			server.Shutdown()
			return nil, err
		}
		opts = append(opts, access...)
		stop, url, m.inside = server.Shutdown, server.ClientURL(), true
	}
	m.from, err = connect.Open(connect.Address{URL: url, At: at, Start: "it", Name: "weir move", Timeout: apiWait, Options: opts})
	if err != nil {
		stop()
		return nil, err
	}
	if m.from.At = m.from.Conn.ConnectedUrlRedacted(); m.inside {
		m.from.At = f.From
	}
	shutdown := stop
	return func() { m.from.Close(); shutdown() }, nil
}

// run copies all streams and compares the copies. Only after that can weir start at the target.
func (m *mover) run(ctx context.Context) error {
	if m.note.ID == "" {
		m.note.ID = nuid.Next()
	}
	if err := writeNote(ctx, m.from.JetStream, m.streams[0].Config.Replicas, leavingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.from.At, m.from.Explain(err))
	}
	if own, err := readNote(ctx, m.to.Conn, leavingKey); err != nil {
		return m.to.Explain(err)
	} else if own != nil && own.ID == m.note.ID {
		return errors.Join(cli.Usage(errors.New("--from and --to are the same server")), dropNote(ctx, m.from.JetStream, leavingKey))
	}
	if err := writeNote(ctx, m.to.JetStream, m.replicas, arrivingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.to.At, m.to.Explain(err))
	}
	// From here on no weir starts at either end. If a weir was just starting, quiet sees it, or verify sees what it has
	// stored.
	if err := m.quiet(ctx); err != nil {
		return err
	}
	if err := m.expel(ctx); err != nil {
		return err
	}
	for i, s := range m.streams {
		sent, err := m.copy(ctx, s)
		if err != nil {
			return fmt.Errorf("%w; nothing is lost: run the same command again, or --abandon", err)
		}
		m.talk("%d of %d: %s, %s, %s sent", i+1, len(m.streams), s.Config.Name, cli.Count(s.State.Msgs, "message"), grammar.FormatSize(sent))
	}
	if err := m.verify(ctx); err != nil {
		return err
	}
	m.note.Done, m.note.At, m.note.Last = true, time.Now().UTC(), map[string]uint64{}
	for _, s := range m.streams {
		m.note.Last[s.Config.Name] = s.State.LastSeq
	}
	if err := writeNote(ctx, m.from.JetStream, 1, leavingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.from.At, m.from.Explain(err))
	}
	if err := m.comeBack(ctx); err != nil {
		return m.to.Explain(err)
	}
	if err := writeNote(ctx, m.to.JetStream, m.replicas, arrivingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.to.At, m.to.Explain(err))
	}
	return m.seal(ctx)
}
