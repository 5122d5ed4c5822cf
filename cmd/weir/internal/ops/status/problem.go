package status

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher"
)

// Problem is a fault that must be mended or, among the warnings, a matter to look at. Fix says what to do.
type Problem struct {
	What string `json:"what"`
	Fix  string `json:"fix"`
}

func (s *Status) problem(what, fix string) { s.Problems = append(s.Problems, Problem{what, fix}) }

func version(n uint64) string { return strconv.FormatUint(n, 10) }

// changed adds a problem about a stream that was changed by hand. If several replicas report the same change, there is
// one problem.
func (s *Status) changed(c dispatcher.StreamChange) {
	p := Problem{fmt.Sprintf("stream %s at %s: %s", cli.Visible(c.Stream), c.At.UTC().Format(time.TimeOnly), c.What), "find out what changed it, and check the disk; the status shows it for an hour"}
	if !slices.Contains(connect.CommonStreams(), c.Stream) { // a queue
		p.Fix = "find out what changed it; letters of its jobs are in `weir dead ls`; this is shown for an hour"
	}
	if c.Gone {
		p = Problem{fmt.Sprintf("stream %s: %s", cli.Visible(c.Stream), c.What), "find out what deleted it, and read weir's log"}
	}
	if !slices.Contains(s.Problems, p) {
		s.Problems = append(s.Problems, p)
	}
}

// judge adds the problems that it finds.
func (s *Status) judge() {
	if s.Intakes == 0 {
		s.problem("no replica accepts jobs: none with the role ingest answers", "start `weir serve` with the role ingest")
	}
	for _, r := range s.Replicas {
		if !r.Ready {
			s.problem(fmt.Sprintf("replica %s is not ready: %s", r.Instance, r.Why), "look at its log")
		}
	}
	s.judgeCopies()
	for _, a := range s.APIs {
		a.judge(s)
		s.Warnings = append(s.Warnings, a.warnings()...)
		s.Warnings = append(s.Warnings, a.callbackWarnings(s.At)...)
	}
	s.Healthy = len(s.Problems) == 0
}

func (a *API) judge(s *Status) {
	if missing := a.Partitions - a.Owned; missing > 0 {
		s.problem(fmt.Sprintf("api %s: no replica dispatches %d of its %d partitions", a.API, missing, a.Partitions),
			"it passes in some seconds where a replica has just gone; else look whether enough replicas run")
	}
	for _, h := range a.Holds {
		if h.Fault {
			s.problem(fmt.Sprintf("api %s is not called: %s", a.API, h.Why), fmt.Sprintf("mend it; `weir resume %s` tries it at once", a.API))
			break // all replicas report the same hold
		}
	}
	if a.limiterDown {
		s.problem(fmt.Sprintf("api %s: the store of its limits does not answer: calls hold", a.API), "look at Redis, and at the log")
	}
	if l := a.limiter; l.What != "" {
		s.problem(fmt.Sprintf("api %s: %s", a.API, cli.Visible(l.What)), cli.Visible(l.Fix))
	}
	if a.clock != "" {
		s.problem(fmt.Sprintf("api %s: %s", a.API, a.clock), "look after the machine's time synchronisation: weir follows the clock when it is set right")
	}
	for i := range a.Limits {
		if l := &a.Limits[i]; l.Unknown && l.Why != "" {
			s.problem(fmt.Sprintf("api %s: limit %s %s", a.API, cli.Visible(l.Limit), l.Text()), "see the reason")
		}
	}
}
