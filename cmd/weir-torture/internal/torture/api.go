package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/plan"
)

// paidAPI is the fake api. Its ledger is the evidence about weir.
type paidAPI struct {
	programs *programs
	ledger   string // the file with the ledger
	refuses  string // the api answers 401 while this file exists
	process  *process
}

func newPaidAPI(p *programs) *paidAPI {
	return &paidAPI{programs: p, ledger: filepath.Join(p.o.Dir, "ledger.jsonl"), refuses: filepath.Join(p.o.Dir, "revoked")}
}

// start starts the api and waits until it listens.
func (a *paidAPI) start(ctx context.Context) (err error) {
	o := a.programs.o
	args := []string{
		"fake-api", "--ledger", a.ledger, "--key-segment=-1", fmt.Sprint("--keep-body=", o.KeepBody()), "--latency=" + latencyOf(o), "--price=10000",
		"--script=" + scriptOf(o), "--other-id-header=" + plan.OtherKeyHeader,
	}
	if o.Idempotent || o.ConfigChanges > 0 {
		args = append(args, "--repeats=awaited")
	}
	if o.Settled {
		args = append(args, "--vendor=openai")
	}
	if o.Operations {
		args = append(args, fmt.Sprint("--operations=", plan.OperationPolls))
	}
	if o.Revocations > 0 {
		args = append(args, "--refuse-while="+a.refuses)
	}
	if a.process, err = a.programs.start(program{name: "fake-api", args: args, mark: "listening http"}); err != nil {
		return err
	}
	return a.process.awaitReady(ctx, startWithin)
}

// stop kills the api. Its ledger is complete without an orderly stop.
func (a *paidAPI) stop() error {
	if a.process != nil {
		a.process.Kill()
	}
	return nil
}

// url returns the api's own address, without a proxy or a link.
func (a *paidAPI) url() string { return a.process.marked[len("listening "):] }

// awaitCall waits until a call reaches the api, the process is gone, or callsWithin has passed. A weir that replaces a
// killed one may have to wait until the killed one's right to call expires.
func (a *paidAPI) awaitCall(ctx context.Context, p *process) {
	before := a.written()
	for limit := time.Now().Add(callsWithin); a.written() == before && time.Now().Before(limit); {
		if p.Gone(ctx, 20*time.Millisecond) || ctx.Err() != nil {
			return
		}
	}
}

// written returns the length of the ledger in bytes, or 0 if unknown.
func (a *paidAPI) written() int64 {
	info, err := os.Stat(a.ledger)
	if err != nil {
		return 0
	}
	return info.Size()
}

// revoke makes the api refuse weir's credentials for a while.
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

// scriptOf returns the behaviour of the api: now and then it answers 429. In runs that change the configuration, the api
// also fails and is slow. So the configuration changes while some calls run and some jobs wait for a retry.
func scriptOf(o *plan.Options) string {
	steps := `{"every":50,"count":"all","do":"status=429; retry-after=1"}`
	each := ""
	if o.Pack > 0 {
		each = "each"
	}
	if o.ConfigChanges > 0 {
		steps += `,{"every":41,"count":"all","do":"status=502"},{"every":7,"count":"all","do":"delay=700ms; ` + each + `"}`
	}
	if o.Pack > 0 {
		steps += `,{"do":"` + each + `"}`
	}
	return "[" + steps + "]"
}

// latencyOf returns the latency of a call. In a fleet it is long enough that the limit of concurrent calls is nearly
// reached.
func latencyOf(o *plan.Options) string {
	if o.IsFleet() {
		return "60ms"
	}
	return "30ms"
}
