package status

import (
	"weir/cmd/weir/internal/cli"
	"weir/dispatcher/schedule"
)

// WaitingText says what a bucket's next job waits for.
func WaitingText(w schedule.Waiting) string {
	until := ""
	if w.Until != nil {
		until = " until " + cli.ClockTime(*w.Until)
	}
	because := ""
	if w.Why != "" {
		because = " because " + w.Why
	}
	switch w.For {
	case schedule.WaitNothing:
		return "nothing: every job is being called"
	case schedule.WaitRate:
		return "rate" + until
	case schedule.WaitInFlight:
		return "in_flight: a running call must end"
	case schedule.WaitLimit:
		return "limit " + w.Limit + until
	case schedule.WaitHeld:
		return "held" + until + because
	case schedule.WaitAPIHeld:
		return "the api is held" + until + because
	case schedule.WaitPaused:
		return "`weir resume`: " + cli.Visible(w.Why)
	case schedule.WaitSlowed:
		return "slowed" + until + ": the api has pushed back"
	case schedule.WaitNotBefore:
		return "the time that its jobs asked for" + until
	case schedule.WaitPack:
		return "more jobs for its pack" + until
	case schedule.WaitRetry:
		return "retry" + until + because
	case schedule.WaitLimiter:
		if w.Why != "" {
			return "the limiter: " + cli.Visible(w.Why)
		}
		return "the limiter, which does not answer"
	case schedule.WaitRoom:
		return "room: as many calls run as the process may make"
	case schedule.WaitReading:
		return "the queue to be read after a start"
	case schedule.WaitAnswer:
		return "the answer to an equal job: " + cli.Visible(w.Why)
	case schedule.WaitClearing:
		return "finished jobs to be deleted"
	case schedule.WaitStop:
		return "a restart: weir is stopping"
	}
	return string(w.For)
}
