package commands

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor reports weir's state to systemd through NOTIFY_SOCKET, if the unit has Type=notify. Without systemd it
// does nothing. It is safe for concurrent use.
type supervisor struct{ log *slog.Logger }

func (s supervisor) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("could not notify systemd", "state", state, "err", err)
	}
}

func (s supervisor) ready()    { s.tell(daemon.SdNotifyReady) }
func (s supervisor) stopping() { s.tell(daemon.SdNotifyStopping) }

// reloading reports that a reload has begun. The caller must call ready after the reload.
func (s supervisor) reloading() {
	s.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// watch tells systemd that the process runs, until ctx ends, if the unit sets WatchdogSec. systemd then restarts a
// process that hangs. watch does not check the queues: a restart would not cure a queue that does not move, so
// readiness reports such a queue.
func (s supervisor) watch(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("cannot notify systemd's watchdog", "err", err)
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
