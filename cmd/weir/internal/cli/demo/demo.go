package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/internal/serving"
)

// Values of the demo. With these it takes about twenty seconds.
const (
	apiName   = "demo"
	busyKey   = "acme" // the customer whose jobs arrive all at once
	calmKey   = "bea"  // the customer who must notice nothing
	burstJobs = 100
	capacity  = 60
	rate      = 5      // calls a second for each customer: the vendor's limit and weir's rate
	callPrice = 10_000 // millionths of a dollar for a call
	idHeader  = "Idempotency-Key"

	// jitter is how late a call may arrive. It is large, because a new user's machine may be busy, and the api can
	// record a call only when the machine lets it run. The large jitter costs a twentieth of the rate.
	jitter = 50 * time.Millisecond
)

// configuration is the demo's weir.yaml; %s is the api's url.
const configuration = `apis:
  demo:
    url: %s/v1
    price: 0.01
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 5/s, capacity: 60}
    jitter: 50ms
`

// Options configure the demo.
type Options struct {
	Exit bool      // end after the verdict; otherwise weir keeps serving
	Out  io.Writer // receives the story, for people
	JSON io.Writer // receives the figures as JSON; nil: they are not written

	NATS, HTTP string // addresses to listen on, if they are free
	// Attributes returns the attributes with which the child process ends when this process dies.
	Attributes func() *syscall.SysProcAttr
}

// demo is one run: a fake paid api, a weir in a process of its own, and a connection to weir like that of any program.
type demo struct {
	Options
	screen   *screen
	dir      string
	api      *fakeapi.API
	weir     *serving.Worker
	nc       *nats.Conn
	js       jetstream.JetStream
	events   *nats.Subscription
	heldUp   *machine.HeldUp
	cleanups []cleanup
}

// cleanup is a function that stops or removes one part of the demo.
type cleanup struct {
	name string
	do   func() error
}

// Run runs the demo and prints the verdict. After that it keeps serving until ctx ends or a signal comes, unless o.Exit
// is set.
func Run(ctx context.Context, o Options) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, unheard := unwatched(ctx)
	defer unheard()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the demo at once
	alive, fail := context.WithCancelCause(ctx)

	d := &demo{Options: o, screen: newScreen(o.Out, o.NATS)}
	defer func() {
		fail(nil) // ends everything that still waits
		err = errors.Join(err, d.cleanUp())
	}()
	r, err := d.story(alive, fail)
	switch {
	case ctx.Err() != nil:
		return errors.New("the demo was interrupted")
	case err != nil:
		return d.explain(err)
	}
	d.screen.verdict(r)
	if o.JSON != nil {
		if err := r.writeJSON(o.JSON); err != nil {
			return err
		}
	}
	switch r.Verdict {
	case bucket.Pass:
	case bucket.Inconclusive:
		if o.Exit {
			return errors.New("the demo proved nothing: this machine is too busy")
		}
	default:
		return errors.New("the demo's check failed")
	}
	if o.Exit {
		return nil
	}
	d.screen.invite(d.weir.NATS, d.weir.HTTP)
	<-alive.Done()
	if ctx.Err() == nil {
		return d.explain(context.Cause(alive))
	}
	d.screen.say("\nstopping")
	return nil
}

// unwatched returns a context that ends when the terminal or pipe that shows the demo has closed. It catches SIGHUP and
// SIGPIPE until stop, because these signals may come several times, and none may end the demo before it has cleaned up.
func unwatched(ctx context.Context) (ended context.Context, stop func()) {
	ended, cancel := context.WithCancel(ctx)
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ended.Done():
		}
	}()
	return ended, func() { signal.Stop(gone); cancel() }
}

// story runs the demo up to the verdict. If weir ends early, story fails with the reason that weir's worker has passed
// to fail.
func (d *demo) story(ctx context.Context, fail context.CancelCauseFunc) (*report, error) {
	d.screen.title()
	if err := d.build(ctx, fail); err != nil {
		return nil, err
	}
	d.screen.stage(d)

	burst, err := d.burst(ctx, busyKey, burstJobs)
	if err != nil {
		return nil, err
	}
	letters, events, err := d.awaitNotices(ctx, burst.throttled)
	if err != nil {
		return nil, err
	}
	d.screen.burst(burst, letters, events)
	calm := d.trickle(ctx, calmKey)

	half := len(burst.accepted) / 2
	err = d.watch(ctx, burst, func(p progress) bool { return p.called >= half && p.running > 0 })
	if err != nil {
		return nil, err
	}
	crash, err := d.killAndRestart(ctx, fail, burst)
	if err != nil {
		return nil, err
	}
	err = d.watch(ctx, burst, func(p progress) bool { return p.called == len(burst.accepted) && p.running == 0 })
	if err != nil {
		return nil, err
	}
	aside, err := calm.stop()
	if err != nil {
		return nil, err
	}
	d.screen.drained(len(burst.accepted), len(aside))
	d.screen.without(direct(burst.sent, fakeapi.VendorLimit{Count: rate, Per: time.Second}))
	return d.judge(ctx, burst, aside, crash)
}

// build starts the api and weir, and connects.
func (d *demo) build(ctx context.Context, fail context.CancelCauseFunc) (err error) {
	if d.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return err
	}
	d.onStop("directory", func() error { return os.RemoveAll(d.dir) })
	d.heldUp = machine.MeasureHeldUp()
	d.onStop("measuring", func() error { d.heldUp.Stop(); return nil })
	d.api, err = fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: 3}, Price: callPrice, Ledger: d.ledger(),
		Limit:       fakeapi.VendorLimit{Count: rate, Per: time.Second},
		Idempotency: fakeapi.Idempotency{Header: idHeader, Repeat: fakeapi.RepeatReplayed},
		Latency:     fakeapi.Latency{Shape: fakeapi.Uniform, Min: 80 * time.Millisecond, Mean: 120 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	d.onStop("paid api", d.api.Close)
	file := filepath.Join(d.dir, "weir.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, d.api.URL()), 0o600); err != nil {
		return err
	}
	d.weir = &serving.Worker{
		Dir: d.dir, Env: []string{"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(d.dir, "data"), "WEIR_INSTANCE=demo"},
		NATS: serving.FreeOr(d.NATS, "127.0.0.1:0"), HTTP: serving.FreeOr(d.HTTP, "127.0.0.1:0"), Fail: fail, Attributes: d.Attributes,
	}
	d.onStop("weir", d.weir.Stop)
	if err := d.weir.Start(ctx); err != nil {
		return err
	}
	d.nc, err = nats.Connect("nats://"+d.weir.NATS, nats.Name("weir demo"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect to weir's NATS: %w", err)
	}
	d.onStop("connection", func() error { d.nc.Close(); return nil })
	if d.js, err = jetstream.New(d.nc); err != nil {
		return err
	}
	d.events, err = d.nc.SubscribeSync("weir.events.throttled.>")
	return err
}

// killAndRestart kills weir as a power cut would. It starts weir again at the same addresses with the same data.
func (d *demo) killAndRestart(ctx context.Context, fail context.CancelCauseFunc, burst *burst) (crash, error) {
	pid := d.weir.PID()
	c := crash{at: d.now(), called: d.progress(burst).called}
	d.weir.Kill()
	c.gone = d.now()
	d.screen.killed(pid, len(burst.accepted)-c.called)
	if err := d.weir.Start(ctx); err != nil {
		return c, err
	}
	c.ready = d.now()
	d.screen.restarted(d.weir.PID(), time.Duration(c.ready-c.at))
	err := d.watch(ctx, burst, func(p progress) bool { return p.last > c.gone })
	d.screen.resumed(time.Duration(d.progress(burst).last - c.at))
	return c, err
}

// now returns the time on the clock of the api's ledger.
func (d *demo) now() int64 { return int64(time.Since(d.api.Started())) }

func (d *demo) ledger() string { return filepath.Join(d.dir, "ledger.jsonl") }

// explain adds the last lines of weir's log to an error.
func (d *demo) explain(err error) error {
	if d.weir == nil || len(d.weir.Tail()) == 0 {
		return err
	}
	return fmt.Errorf("%w\nthe last lines of weir's log:\n%s", err, d.weir.Tail())
}

func (d *demo) onStop(name string, do func() error) {
	d.cleanups = append(d.cleanups, cleanup{name, do})
}

func (d *demo) cleanUp() error {
	var errs []error
	for i := len(d.cleanups) - 1; i >= 0; i-- {
		if err := d.cleanups[i].do(); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %s: %w", d.cleanups[i].name, err))
		}
	}
	return errors.Join(errs...)
}
