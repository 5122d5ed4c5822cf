package torture

import (
	"context"
	"syscall"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"
)

// mishaps executes the faults that do not end weir: those of its server, its network, its disk and its credentials, and
// stops.
type mishaps struct {
	events  []plan.Event
	lives   *lives
	weir    *weir
	server  *server // nil if the server is inside weir
	network *network.Proxy
	api     *paidAPI
	record  *record
}

// happen executes each planned event when the event's part of the lives is over.
func (m *mishaps) happen(ctx, faults context.Context) error {
	for _, e := range m.events {
		if !m.lives.awaitPart(ctx, e.After) || !stream.Sleep(faults, e.Pause) {
			return nil // the time is up, or the lives have failed
		}
		if err := m.do(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (m *mishaps) do(ctx context.Context, e plan.Event) error {
	switch e.Kind {
	case plan.KillServer:
		return m.server.replace(ctx, e.Last)
	case plan.StopWorker:
		worker := m.weir.now()
		if worker == nil {
			return nil // between two lives; not counted
		}
		pause(ctx, worker, e.Last)
	case plan.StopServer:
		pause(ctx, m.server.now(), e.Last)
	case plan.CutNetwork:
		if err := m.network.Spoil(ctx, e.Toxic, e.Last); err != nil {
			return err
		}
	case plan.FillDisk:
		if m.server.disk == nil {
			return nil // a note says so already
		}
		m.weir.awaitUp(ctx) // otherwise nothing would be written
		if err := m.server.fill(ctx, e.Last); err != nil {
			return err
		}
	case plan.Revoke:
		if err := m.api.revoke(ctx, e.Last); err != nil {
			return err
		}
	default:
		panic("torture: unknown event " + e.Kind) // a bug in the plan
	}
	m.record.count(e.Kind)
	return nil
}

// pause suspends a process for a while.
func pause(ctx context.Context, p *process, last time.Duration) {
	p.Signal(syscall.SIGSTOP)
	stream.Sleep(ctx, last)
	p.Signal(syscall.SIGCONT)
}
