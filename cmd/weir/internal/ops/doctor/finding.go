package doctor

import (
	"context"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/status"
)

// Grade is the severity of a finding.
type Grade string

// The grades.
const (
	Fine  Grade = "ok"
	Watch Grade = "warning"
	Bad   Grade = "problem"
)

// Finding is the result of one check.
type Finding struct {
	Grade Grade  `json:"grade"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"`
}

// Options are what to examine. Config and Status may be nil.
type Options struct {
	Settings   *environment.Settings
	Connection *connect.Connection // nil if the server cannot be reached
	Config     *config.Config
	Confirmed  map[string]string // the revision of each vendor's profile when the running configuration was applied
	Status     *status.Status
}

// examination collects findings.
type examination struct {
	Options
	findings []Finding
}

func (e *examination) fine(format string, args ...any) {
	e.findings = append(e.findings, Finding{Fine, fmt.Sprintf(format, args...), ""})
}

func (e *examination) watch(fix, format string, args ...any) {
	e.findings = append(e.findings, Finding{Watch, fmt.Sprintf(format, args...), fix})
}

func (e *examination) bad(fix, format string, args ...any) {
	e.findings = append(e.findings, Finding{Bad, fmt.Sprintf(format, args...), fix})
}

// Examine makes all checks and returns their findings in a fixed order. For each API that does not answer it blocks for
// some seconds.
func Examine(ctx context.Context, o Options) []Finding {
	e := &examination{Options: o}
	e.running()
	e.environment()
	e.dataDirectory()
	e.server(ctx)
	e.redis(ctx)
	e.timers(ctx)
	e.limits()
	e.excesses()
	e.profiles()
	e.shares(ctx)
	e.ways(ctx)
	return e.findings
}

// running adds the problems and warnings of the status.
func (e *examination) running() {
	if e.Status == nil {
		return
	}
	for _, p := range e.Status.Problems {
		e.bad(p.Fix, "%s", p.What)
	}
	for _, p := range e.Status.Warnings {
		e.watch(p.Fix, "%s", p.What)
	}
	if len(e.Status.Problems) == 0 {
		e.fine("weir runs and is healthy: %s, dispatched by %s", cli.Count(len(e.Status.APIs), "api"), cli.Count(len(e.Status.Replicas), "replica"))
	}
}

// environment adds findings about variables with questionable values.
func (e *examination) environment() {
	for _, p := range e.Settings.Warnings {
		e.watch(p.Fix, "%s: %s", p.Path, p.Message)
	}
	if e.Settings.Embedded() && e.Settings.Durability == environment.DurabilityInterval {
		e.watch("set WEIR_DURABILITY=always", "WEIR_DURABILITY is interval: a power cut may lose jobs accepted in the last second")
	}
}
