package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
)

// check refuses an impossible move before anything is changed. done reports whether this move was completed earlier.
func (m *mover) check(ctx context.Context) (done bool, err error) {
	if m.streams, err = Streams(ctx, m.from.JetStream); err != nil {
		return false, m.from.Explain(err)
	}
	if len(m.streams) == 0 {
		return false, cli.NotFound(fmt.Errorf("there is nothing to move: weir has not run on %s", m.from.At))
	}
	if err := m.checkTarget(ctx); err != nil {
		return false, err
	}
	leaving, err := readNote(ctx, m.from.Conn, leavingKey)
	if err != nil {
		return false, m.from.Explain(err)
	}
	arriving, err := readNote(ctx, m.to.Conn, arrivingKey)
	if err != nil {
		return false, m.to.Explain(err)
	}
	begun := leaving != nil && arriving != nil && leaving.ID == arriving.ID
	switch {
	case begun && arriving.Done:
		m.note = *arriving
		m.talk("everything was moved from %s to %s at %s already", m.from.At, m.to.At, cli.ClockTime(arriving.At))
		return true, m.seal(ctx)
	case leaving != nil && !begun && (leaving.Done || leaving.To != m.to.At):
		return false, cli.Refused(fmt.Errorf("a move of the jobs on %s to %s was begun: name that server as --to, or cancel an unfinished move with --abandon", m.from.At, leaving.To))
	case arriving != nil && !arriving.Done && !begun:
		return false, cli.Refused(fmt.Errorf("%s is the target of an unfinished move from %s: finish that first, or cancel it with --abandon", m.to.At, arriving.From))
	case begun:
		m.note.ID = leaving.ID
		m.talk("going on with the move that was begun at %s", cli.ClockTime(leaving.At))
	default:
		if leaving != nil {
			m.note.ID = leaving.ID
		}
		if err := m.refuseContent(ctx); err != nil {
			return false, err
		}
	}
	return false, m.quiet(ctx)
}

// refuseContent fails if the target has streams of weir.
func (m *mover) refuseContent(ctx context.Context) error {
	there, err := Streams(ctx, m.to.JetStream)
	if err != nil {
		return m.to.Explain(err)
	}
	if len(there) > 0 {
		return cli.Refused(fmt.Errorf("%s already has %s of weir, the first is %s with %s: a move needs a server without them. Name another server or account, or remove them (nats stream rm) if their messages are not needed",
			m.to.At, cli.Count(len(there), "stream"), there[0].Config.Name, cli.Count(there[0].State.Msgs, "message")))
	}
	return nil
}

// checkTarget checks that weir could run on the target, and that the target takes the source's streams.
func (m *mover) checkTarget(ctx context.Context) error {
	check := connect.Check{
		Conn: m.to.Conn, JetStream: m.to.JetStream, Denied: m.to.Denied, Settings: &environment.Settings{Replicas: m.replicas}, Log: slog.New(slog.DiscardHandler),
	}
	if v, err := admin.CurrentVersion(ctx, m.from); err == nil {
		check.Config = v.Config
	}
	if err := check.TakesCopies(ctx); err != nil {
		return err
	}
	var from, to [2]int
	_, err := fmt.Sscanf(m.from.Conn.ConnectedServerVersion(), "%d.%d", &from[0], &from[1])
	_, err2 := fmt.Sscanf(m.to.Conn.ConnectedServerVersion(), "%d.%d", &to[0], &to[1])
	if err == nil && err2 == nil && (to[0] < from[0] || to[0] == from[0] && to[1] < from[1]) {
		return cli.Refused(fmt.Errorf("the nats-server at %s is version %s, the one at %s is %s: upgrade the target: it may be unable to read what the other writes",
			m.to.At, m.to.Conn.ConnectedServerVersion(), m.from.At, m.from.Conn.ConnectedServerVersion()))
	}
	return nil
}

// quiet fails if a weir runs at either end.
func (m *mover) quiet(ctx context.Context) error {
	if !m.inside {
		if err := refuseRunning(ctx, m.from); err != nil {
			return err
		}
	}
	return refuseRunning(ctx, m.to)
}

// expel ends the leases of replicas that dispatched at the source and are now silent, because such a replica may be a
// suspended process that could continue. The note is already stored, so these replicas cannot begin a new lease.
func (m *mover) expel(ctx context.Context) error {
	if m.inside {
		return nil
	}
	registry, err := lease.FindRegistry(ctx, m.from.JetStream)
	if err != nil {
		return m.from.Explain(err)
	}
	if registry == nil {
		return nil
	}
	switch err := registry.ExpelAll(ctx); {
	case errors.Is(err, lease.ErrLives):
		return cli.Refused(fmt.Errorf("a weir dispatches on %s: stop it first", m.from.At))
	case err != nil:
		return m.from.Explain(err)
	}
	m.streams, err = Streams(ctx, m.from.JetStream) // ExpelAll has changed the leases
	return m.from.Explain(err)
}

// copy makes the target's stream equal to the source's stream. It replaces what an earlier try has left.
func (m *mover) copy(ctx context.Context, s *jetstream.StreamInfo) (sent int64, err error) {
	name := s.Config.Name
	there, err := m.to.JetStream.Stream(ctx, name)
	switch {
	case err == nil && differs(s, there.CachedInfo()) == "":
		return 0, nil
	case err == nil:
		// An interrupted try left the stream. No weir has run there since, and the source has all messages.
		if err := m.to.JetStream.DeleteStream(ctx, name); err != nil {
			return 0, fmt.Errorf("remove what is left of %s on %s: %w", name, m.to.At, m.to.Explain(err))
		}
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, m.to.Explain(err)
	}
	c := streamCopy{from: m.from.Conn, to: m.to.Conn, name: name, replicas: m.replicas}
	for start := time.Now(); ; {
		sent, err = c.run(ctx)
		var api *jetstream.APIError
		// If the sender of a restore has died, the server abandons the restore, but not at once.
		if errors.As(err, &api) && api.ErrorCode == codeRestoreNameInUse && time.Since(start) < vanishWait && stream.Sleep(ctx, settlePoll) {
			continue
		}
		return sent, err
	}
}

// codeRestoreNameInUse is the server's error code if the stream exists or is being restored.
const codeRestoreNameInUse = 10130

// verify compares every stream with its copy, and with the stream's state at the beginning of the move.
func (m *mover) verify(ctx context.Context) error {
	now, err := Streams(ctx, m.from.JetStream)
	if err != nil {
		return m.from.Explain(err)
	}
	if len(now) != len(m.streams) {
		return fmt.Errorf("%s had %d streams and has %d: a program uses it; run the same command again", m.from.At, len(m.streams), len(now))
	}
	for i, s := range m.streams {
		if why := differs(s, now[i]); why != "" {
			return fmt.Errorf("%s on %s has changed while it was copied (%s): a program uses it; stop that and run the same command again", s.Config.Name, m.from.At, why)
		}
		copied, err := awaitCopies(ctx, m.to, s.Config.Name)
		if err != nil {
			return err
		}
		if why := differs(s, copied); why != "" {
			return fmt.Errorf("the copy of %s on %s is wrong: %s; run the same command again", s.Config.Name, m.to.At, why)
		}
	}
	return nil
}

// comeBack drops the target's note of a former move away from it. With that note weir would start at neither end. It
// does so only when the move is done at the source, and before it is done at the target: so weir starts at the target
// only when all jobs are there.
func (m *mover) comeBack(ctx context.Context) error {
	left, err := readNote(ctx, m.to.Conn, leavingKey)
	if err != nil || left == nil {
		return err
	}
	return dropNote(ctx, m.to.JetStream, leavingKey)
}

// seal makes the source refuse late messages. An intake that was suspended or cut off during the move continues at the
// source until it reads the note. Because of the seal it answers 503 until then. A seal cannot be undone, so seal is
// the last step. If messages arrived after their stream was copied, seal fails and names them, also when it is repeated.
func (m *mover) seal(ctx context.Context) error {
	if m.inside {
		return nil // no other process uses the data
	}
	streams, err := Streams(ctx, m.from.JetStream)
	if err != nil {
		return m.from.Explain(err)
	}
	var failed, late []string
	for _, s := range streams {
		name, last := s.Config.Name, s.State.LastSeq
		if !strings.HasPrefix(name, "WEIR_") {
			continue
		}
		if !s.Config.Sealed {
			sealed := s.Config
			sealed.Sealed = true
			stream, err := m.from.JetStream.UpdateStream(ctx, sealed)
			if err != nil {
				failed = append(failed, fmt.Sprintf("%s (%v)", name, m.from.Explain(err)))
			} else {
				last = stream.CachedInfo().State.LastSeq
			}
		}
		if last > m.note.Last[name] {
			late = append(late, fmt.Sprintf("%s from %d on", name, m.note.Last[name]+1))
		}
	}
	var lacks []error
	if len(failed) > 0 {
		lacks = append(lacks, fmt.Errorf("everything is moved, but streams on %s could not be sealed; run the same command again: %s", m.from.At, strings.Join(failed, ", ")))
	}
	if len(late) > 0 {
		lacks = append(lacks, fmt.Errorf("everything is moved, but jobs arrived on %s after it was copied and are only there; read them (nats stream view) and submit them again: %s",
			m.from.At, strings.Join(late, ", ")))
	}
	return errors.Join(lacks...)
}

// abandon takes back a move that is not done.
func (m *mover) abandon(ctx context.Context) error {
	leaving, err := readNote(ctx, m.from.Conn, leavingKey)
	if err != nil {
		return m.from.Explain(err)
	}
	arriving, err := readNote(ctx, m.to.Conn, arrivingKey)
	if err != nil {
		return m.to.Explain(err)
	}
	switch {
	case leaving == nil:
		return cli.NotFound(fmt.Errorf("no move from %s was begun", m.from.At))
	case leaving.Done || arriving != nil && arriving.ID == leaving.ID && arriving.Done:
		return cli.Refused(fmt.Errorf("the move from %s to %s is done: weir may have called jobs there since", m.from.At, leaving.To))
	case (arriving == nil || arriving.ID != leaving.ID) && leaving.To != m.to.At:
		return cli.Refused(fmt.Errorf("the move from %s goes to %s: name that as --to, so that the copies there are removed too", m.from.At, leaving.To))
	}
	if arriving != nil && arriving.ID == leaving.ID {
		if err := m.dropCopies(ctx); err != nil {
			return err
		}
	}
	if err := dropNote(ctx, m.from.JetStream, leavingKey); err != nil {
		return m.from.Explain(err)
	}
	m.talk("the move to %s is taken back: weir starts on %s again", m.to.At, m.from.At)
	return nil
}

// dropCopies deletes the copies of this move on the target. The target had no streams of weir before the move.
func (m *mover) dropCopies(ctx context.Context) error {
	if err := refuseRunning(ctx, m.to); err != nil {
		return err
	}
	copies, err := Streams(ctx, m.to.JetStream)
	if err != nil {
		return m.to.Explain(err)
	}
	for _, s := range copies {
		if err := m.to.JetStream.DeleteStream(ctx, s.Config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove %s from %s: %w", s.Config.Name, m.to.At, m.to.Explain(err))
		}
	}
	return m.to.Explain(dropNote(ctx, m.to.JetStream, arrivingKey))
}
