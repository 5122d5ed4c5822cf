package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/embedded"
)

// moveFlags are what `weir move` was asked.
type moveFlags struct {
	from, fromCreds, to string
	abandon             bool
	confirm             cli.Confirmation
	as                  cli.Format
}

func moveCommand() *cobra.Command {
	f := &moveFlags{as: cli.ForPeople}
	cmd := &cobra.Command{
		Use:   "move --from DIR|URL [--to URL]",
		Short: "Move everything to another NATS server: jobs, letters, results, the ledger, the configuration",
		Long: `Copies every stream and key-value bucket of weir to another server, so that weir goes on there where it stopped here: jobs
in their order, under their sequences and ids, with retry marks, intents and the state of the limits. No job is lost, and
none is called twice.

Stop weir first. --from is the data directory of a weir with the server inside, or the address of a server; --to is the
address of the new one, by default WEIR_NATS_URL, which has WEIR_NATS_CREDS, WEIR_NATS_CA and WEIR_REPLICAS as for serve.
The user needs the role mover of deploy/nats, and WEIR_NATS_INBOX that role's prefix of inboxes.

It can be broken off at any time and run again. Until it is done, weir starts on neither server; when it is done, only
on the new one. The old one keeps what it had. --abandon takes a move back that is not done.`,
		Example: "  WEIR_NATS_INBOX=_INBOX.mover weir move --from weir-data --to nats://mover@nats-1:4222\n" +
			"  WEIR_NATS_URL=tls://nats:4222 WEIR_NATS_CREDS=mover.creds WEIR_NATS_INBOX=_INBOX.mover weir move --from /var/lib/weir/data",
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return move(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "the data directory, or the server's address")
	flags.StringVar(&f.fromCreds, "from-creds", "", "credentials file for --from, where that is an address")
	flags.StringVar(&f.to, "to", "", "the new server's address (default WEIR_NATS_URL)")
	flags.BoolVar(&f.abandon, "abandon", false, "take back a move that is not done: drop what was copied, and let weir start on the old server")
	f.confirm.Add(flags)
	f.as.Add(flags, "one JSON object")
	return cmd
}

// mover is a move under way.
type mover struct {
	from, to *connect.Connection
	inside   bool // the source is a server in this process: nobody else uses its data
	replicas int
	talk     func(format string, args ...any)
	note     moveNote
	streams  []*jetstream.StreamInfo // of the source, as they were when it began
}

// movedJSON is what --json prints.
type movedJSON struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Streams  int    `json:"streams"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Replicas int    `json:"replicas"`
}

func move(cmd *cobra.Command, f *moveFlags) error {
	m, stop, err := openMove(cmd, f)
	if err != nil {
		return err
	}
	defer stop()
	ctx := cmd.Context()
	if f.abandon {
		return m.abandon(ctx)
	}
	done, err := m.check(ctx)
	if err != nil || done {
		return err
	}
	told := movedJSON{From: m.from.At, To: m.to.At, Streams: len(m.streams), Replicas: m.replicas}
	for _, s := range m.streams {
		told.Messages += s.State.Msgs
		told.Bytes += s.State.Bytes
	}
	err = f.confirm.Ask(cmd, fmt.Sprintf("Move %s with %s (%s) from %s to %s, with %s?", cli.Count(told.Streams, "stream"), cli.Count(told.Messages, "message"),
		config.FormatSize(int64(told.Bytes)), m.from.At, m.to.At, cli.Count(m.replicas, "replica")))
	if err != nil {
		return err
	}
	if err := m.run(ctx); err != nil {
		return err
	}
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), told)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "moved %s with %s to %s: start weir there (WEIR_NATS_URL); %s is kept, and weir will not start on it\n",
		cli.Count(told.Streams, "stream"), cli.Count(told.Messages, "message"), m.to.At, m.from.At)
	return err
}

// openMove connects to both ends.
func openMove(cmd *cobra.Command, f *moveFlags) (m *mover, stop func(), err error) {
	settings, err := config.ReadSettingsFor(f.to)
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	if settings.Embedded() || f.from == "" {
		return nil, nil, cli.Usage(errors.New("say from where and to where: --from with a data directory or an address, --to or WEIR_NATS_URL with the new server's"))
	}
	m = &mover{replicas: settings.Replicas, talk: func(format string, args ...any) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: "+format+"\n", args...) // talk
	}}
	stopSource, err := m.openSource(cmd.Context(), f, settings)
	if err != nil {
		return nil, nil, err
	}
	if m.to, err = connect.DialAs(settings); err != nil {
		stopSource()
		return nil, nil, err
	}
	m.note = moveNote{From: m.from.At, To: m.to.At, Who: cli.User(), At: time.Now().UTC()}
	return m, func() { m.to.Close(); stopSource() }, nil
}

// openSource connects to the server to move from, and starts it where it is a directory.
func (m *mover) openSource(ctx context.Context, f *moveFlags, settings *config.Settings) (stop func(), err error) {
	var opts []nats.Option
	if inbox := settings.NATSInbox; inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	url, at := f.from, "the server at --from"
	stop = func() {}
	if strings.Contains(f.from, "://") {
		if f.fromCreds != "" {
			opts = append(opts, nats.UserCredentials(f.fromCreds))
		}
		if settings.NATSCA != "" {
			opts = append(opts, nats.RootCAs(settings.NATSCA))
		}
	} else {
		if _, err := os.Stat(filepath.Join(f.from, "jetstream")); err != nil {
			return nil, cli.NotFound(fmt.Errorf("%s is no data directory of weir: there is nothing of a nats-server in it", f.from))
		}
		server, err := embedded.Start(ctx, embedded.Options{
			Listen: "127.0.0.1:0", Dir: f.from, SyncAlways: true, MaxPayload: connect.MaxPayload(nil), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, cli.Refused(err)
		}
		stop, url, m.inside = server.Shutdown, server.ClientURL(), true
	}
	m.from, err = connect.Open(connect.Address{URL: url, At: at, Start: "it", Name: "weir move", Timeout: apiWait, Options: opts})
	if err != nil {
		stop()
		return nil, err
	}
	if m.from.At = m.from.Conn.ConnectedUrlRedacted(); m.inside {
		m.from.At = f.from
	}
	shutdown := stop
	return func() { m.from.Close(); shutdown() }, nil
}

// run copies, verifies, and only then lets weir start at the target.
func (m *mover) run(ctx context.Context) error {
	if m.note.ID == "" {
		m.note.ID = nuid.Next()
	}
	if err := writeMove(ctx, m.from.JetStream, m.streams[0].Config.Replicas, leavingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.from.At, m.from.Explain(err))
	}
	if own, err := readMove(ctx, m.to.JetStream, leavingKey); err != nil {
		return m.to.Explain(err)
	} else if own != nil && own.ID == m.note.ID {
		return errors.Join(cli.Usage(errors.New("--from and --to are the same server")), dropMove(ctx, m.from.JetStream, leavingKey))
	}
	if err := writeMove(ctx, m.to.JetStream, m.replicas, arrivingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.to.At, m.to.Explain(err))
	}
	// From here on no weir starts at either end. One that was just starting shows now, or by what it stores.
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
		m.talk("%d of %d: %s, %s, %s sent", i+1, len(m.streams), s.Config.Name, cli.Count(s.State.Msgs, "message"), config.FormatSize(sent))
	}
	if err := m.verify(ctx); err != nil {
		return err
	}
	m.note.Done, m.note.At = true, time.Now().UTC()
	if err := writeMove(ctx, m.from.JetStream, 1, leavingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.from.At, m.from.Explain(err))
	}
	if err := writeMove(ctx, m.to.JetStream, m.replicas, arrivingKey, m.note); err != nil {
		return fmt.Errorf("%s: %w", m.to.At, m.to.Explain(err))
	}
	return m.seal(ctx)
}
