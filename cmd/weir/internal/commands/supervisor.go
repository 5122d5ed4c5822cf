package commands

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is who started weir and wants to hear how it does: systemd, by NOTIFY_SOCKET, where its unit says Type=notify. Without one
// nothing is told. It is safe for concurrent use.
type supervisor struct{ log *slog.Logger }

func (s supervisor) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("systemd could not be told", "state", state, "err", err)
	}
}

func (s supervisor) ready()    { s.tell(daemon.SdNotifyReady) }
func (s supervisor) stopping() { s.tell(daemon.SdNotifyStopping) }

// reloading is to be followed by ready.
func (s supervisor) reloading() {
	s.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// watch says until ctx ends that the process still runs, where WatchdogSec asks for that: a process that hangs is started anew. A queue
// that does not move is not told here but by readiness: starting anew would not mend it.
func (s supervisor) watch(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("systemd's watchdog cannot be answered", "err", err)
	}
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		s.tell(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
