package torture

import (
	"context"
	"syscall"
	"time"

	"weir/bucket/stream"
)

// mishaps executes the faults that do not end weir: those of its server, its network, its disk and its credentials, and
// stops.
type mishaps struct {
	events  []event
	lives   *lives
	weir    *weir
	server  *server // nil if the server is inside weir
	network *network
	api     *paidAPI
	record  *record
}

// happen executes each planned event when the event's part of the lives is over.
func (m *mishaps) happen(ctx, faults context.Context) error {
	for _, e := range m.events {
		if !m.lives.awaitPart(ctx, e.after) || !stream.Sleep(faults, e.pause) {
			return nil // the time is up, or the lives have failed
		}
		if err := m.do(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (m *mishaps) do(ctx context.Context, e event) error {
	switch e.kind {
	case killServer:
		return m.server.replace(ctx, e.last)
	case stopWorker:
		worker := m.weir.now()
		if worker == nil {
			return nil // between two lives; not counted
		}
		pause(ctx, worker, e.last)
	case stopServer:
		pause(ctx, m.server.now(), e.last)
	case cutNetwork:
		if err := m.network.spoil(ctx, e.toxic, e.last); err != nil {
			return err
		}
	case fillDisk:
		if m.server.disk == nil {
			return nil // a note says so already
		}
		m.weir.awaitUp(ctx) // otherwise nothing would be written
		if err := m.server.fill(ctx, e.last); err != nil {
			return err
		}
	case revoke:
		if err := m.api.revoke(ctx, e.last); err != nil {
			return err
		}
	default:
		panic("torture: unknown event " + e.kind) // a bug in the plan
	}
	m.record.count(e.kind)
	return nil
}

// pause suspends a process for a while.
func pause(ctx context.Context, p *process, last time.Duration) {
	p.Signal(syscall.SIGSTOP)
	stream.Sleep(ctx, last)
	p.Signal(syscall.SIGCONT)
}
