package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/bucket/stream"
)

// paidAPI is the fake api: what it writes into its ledger is what weir is judged by.
type paidAPI struct {
	programs *programs
	ledger   string // the file
	refuses  string // the file that has it answer 401 as long as it is there
	process  *process
}

func newPaidAPI(p *programs) *paidAPI {
	return &paidAPI{programs: p, ledger: filepath.Join(p.o.Dir, "ledger.jsonl"), refuses: filepath.Join(p.o.Dir, "revoked")}
}

// start starts it, and waits until it listens.
func (a *paidAPI) start(ctx context.Context) (err error) {
	o := a.programs.o
	args := []string{
		"fake-api", "--ledger", a.ledger, "--key-segment=-1", "--keep-body=64", "--latency=" + o.latency(), "--price=10000",
		"--script=" + o.script(), "--other-id-header=" + otherKeyHeader,
	}
	if o.Idempotent || o.ConfigChanges > 0 {
		args = append(args, "--repeats=awaited")
	}
	if o.Revocations > 0 {
		args = append(args, "--refuse-while="+a.refuses)
	}
	if a.process, err = a.programs.start(program{name: "fake-api", args: args, mark: "listening http"}); err != nil {
		return err
	}
	return a.process.awaitReady(ctx, startWithin)
}

// stop ends it: its ledger needs no more.
func (a *paidAPI) stop() error {
	if a.process != nil {
		a.process.Kill()
	}
	return nil
}

// url is where it listens itself.
func (a *paidAPI) url() string { return a.process.marked[len("listening "):] }

// awaitCall waits until a call reaches the api, the process is gone, or callsWithin has passed. A weir that follows one that
// was killed may not call before that one's right to is over.
func (a *paidAPI) awaitCall(ctx context.Context, p *process) {
	before := a.written()
	for limit := time.Now().Add(callsWithin); a.written() == before && time.Now().Before(limit); {
		if p.Gone(ctx, 20*time.Millisecond) || ctx.Err() != nil {
			return
		}
	}
}

// written is the length of the ledger, 0 where it cannot be read.
func (a *paidAPI) written() int64 {
	info, err := os.Stat(a.ledger)
	if err != nil {
		return 0
	}
	return info.Size()
}

// revoke takes weir's credentials away for a while.
func (a *paidAPI) revoke(ctx context.Context, last time.Duration) error {
	if err := os.WriteFile(a.refuses, nil, 0o600); err != nil {
		return fmt.Errorf("revoke credentials: %w", err)
	}
	stream.Sleep(ctx, last)
	if err := os.Remove(a.refuses); err != nil {
		return fmt.Errorf("give credentials back: %w", err)
	}
	return nil
}

// script is what the api answers: now and then that it is too much. In runs that change the configuration it fails, too, and takes
// its time, so that calls are under way, and jobs wait for another one, under terms that are no more.
func (o *Options) script() string {
	steps := `{"every":50,"count":"all","do":"status=429; retry-after=1"}`
	if o.ConfigChanges > 0 {
		steps += `,{"every":41,"count":"all","do":"status=502"},{"every":7,"count":"all","do":"delay=700ms"}`
	}
	return "[" + steps + "]"
}

// latency of a call. In a fleet it is such that calls come close to how many may run at once.
func (o *Options) latency() string {
	if o.isFleet() {
		return "60ms"
	}
	return "30ms"
}
