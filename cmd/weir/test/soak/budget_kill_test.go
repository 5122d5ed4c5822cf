package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// budgetRig is a weir process with a budget that is killed, and can be asked how much of it is used.
type budgetRig struct {
	*weirtest.KillRig
	http string
	dir  string // its store
}

func newBudgetRig(t *testing.T, o fakeapi.Options, yaml string) *budgetRig {
	t.Helper()
	r := &budgetRig{http: servers.FreePort(t)}
	r.KillRig = weirtest.NewKillRig(t, o, yaml, "WEIR_HTTP_LISTEN="+r.http)
	r.dir = filepath.Join(filepath.Dir(r.Env[0][len("WEIR_CONFIG="):]), "data")
	return r
}

// metrics are what the process tells.
func (r *budgetRig) metrics() string {
	ctx, cancel := context.WithTimeout(r.T.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+"/metrics", nil)
	if err != nil {
		r.T.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return ""
	}
	return string(body)
}

var usedLine = regexp.MustCompile(`(?m)^weir_limit_used_ratio\{api="pay",limit="([a-z]+)"\} (\S+)$`)

// used is how much of a limit is used, as soon as the metric says it.
func (r *budgetRig) used(limit string) float64 {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), time.Minute)
	defer cancel()
	for {
		for _, m := range usedLine.FindAllStringSubmatch(r.metrics(), -1) {
			if m[1] != limit {
				continue
			}
			ratio, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				r.T.Fatal(err)
			}
			return ratio
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			r.T.Fatalf("waited in vain for the metric of how much of %s is used", limit)
		}
	}
}

// weir runs a command against the process.
func (r *budgetRig) weir(args ...string) []byte {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "WEIR_NATS_URL=nats://"+r.Addr, "WEIR_DATA_DIR="+r.dir)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil && len(out) == 0 { // verify fails if a busy machine leaves the result in doubt
		r.T.Fatalf("weir %v: %v\n%s", args, err, &talk)
	}
	return out
}

// verified is what verify says of a limit's present window.
func (r *budgetRig) verified(limit string) int64 {
	r.T.Helper()
	var v verify.Report
	if err := json.Unmarshal(r.weir("verify", "--json", "--api", "pay"), &v); err != nil {
		r.T.Fatal(err)
	}
	l := program.LimitFound(r.T, v, limit)
	if l.Used == nil {
		r.T.Fatalf("verify does not say how much of %s is used: %+v", limit, l)
	}
	return *l.Used
}

// shown is what show says of a limit, by a key that has a job.
func (r *budgetRig) shown(key, limit string) limitstate.LimitShown {
	r.T.Helper()
	var k admin.KeyShown
	if err := json.Unmarshal(r.weir("show", "pay", key, "--json"), &k); err != nil {
		r.T.Fatal(err)
	}
	for _, l := range k.Limits {
		if l.Limit == limit {
			return l
		}
	}
	r.T.Fatalf("show says nothing of %s", limit)
	return limitstate.LimitShown{}
}

const idleBudget = `
apis:
  pay:
    url: %s/v1
    price: 0.05
    bucket: {rate: 50/s, capacity: 500}
    limits:
      - {name: spend, budget: 20.00/day}
      - {name: few, quota: 10/day, tz: UTC}
      - {name: slide, quota: 300/3h, window: sliding}
`

// TestIdleKillsUseNothing: a weir without a job that is killed again and again has used nothing, whether it is killed a
// while after its start or before it has found out what the one before had used.
func TestIdleKillsUseNothing(t *testing.T) {
	t.Parallel()
	r := newBudgetRig(t, fakeapi.Options{}, idleBudget)
	for n := range 12 {
		for _, limit := range []string{"spend", "few", "slide"} {
			if used := r.used(limit); used != 0 {
				t.Fatalf("after %d kills %g of %s is used, and nothing was called", n, used, limit)
			}
		}
		r.Proc.Kill()
		if n%3 == 2 {
			r.killEarly(time.Duration(n) * 60 * time.Millisecond)
		}
		r.Start()
	}
	for _, limit := range []string{"spend", "few", "slide"} {
		if used := r.used(limit); used != 0 {
			t.Errorf("%g of %s is used, and nothing was called", used, limit)
		}
	}
	r.stop()
	r.Start()
	if used := r.used("spend"); used != 0 {
		t.Errorf("after an orderly stop %g is used", used)
	}
}

// killEarly starts a weir and kills it a moment later, whether it is ready or not.
func (r *budgetRig) killEarly(after time.Duration) {
	r.T.Helper()
	cmd := exec.CommandContext(r.T.Context(), os.Args[0], "serve")
	cmd.Env = append(append(program.Environ(), "WEIR_TEST_AS_WEIR=1"), r.Env...)
	if err := cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	stream.Sleep(r.T.Context(), after)
	_ = cmd.Process.Kill()                                  // it may have ended
	_ = await.Result(r.T, "a killed weir to end", cmd.Wait) // by that
}

const busyBudget = `
apis:
  pay:
    url: %%s/v1
    price: 0.05
    timeout: 10s
    jitter: 20ms
    %s
    bucket: {rate: 20/s, capacity: 5000, in_flight: 4}
    limits:
      - {name: spend, budget: %s/day, tz: %s}
      - {name: slide, quota: 100000/3h, window: sliding}
    keys: {slow: {rate: 1/24h}}
`

// TestBudgetAfterKillsIsTheLedgers: after kills under load, some of them right after a start, a budget counts what was
// called and what may have been, each once, never less; and metric, show and verify say it alike.
func TestBudgetAfterKillsIsTheLedgers(t *testing.T) {
	t.Parallel()
	t.Run("not idempotent", func(t *testing.T) { budgetUnderKills(t, "", "200.00", 0) })
	t.Run("and spent", func(t *testing.T) { budgetUnderKills(t, "", "2.00", 40) })
	const keyed = "idempotency: {header: Idempotency-Key}"
	t.Run("idempotent", func(t *testing.T) { budgetUnderKills(t, keyed, "200.00", 0) })
	t.Run("idempotent and spent", func(t *testing.T) { budgetUnderKills(t, keyed, "2.00", 40) })
}

// budgetUnderKills kills a weir under load. most is how many calls the budget buys, 0 for more than are made.
func budgetUnderKills(t *testing.T, line, budget string, most int) {
	r := newBudgetRig(t, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: 5 * time.Millisecond, Mean: 60 * time.Millisecond, Seed: 1},
	}, fmt.Sprintf(busyBudget, line, budget, machine.Noon()))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			// A busy machine may have published too few to spend the budget when the kills are over.
			for n := p; publishing.Err() == nil || n < 2*most; n += 4 {
				r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
				stream.Sleep(publishing, 20*time.Millisecond)
			}
		})
	}
	for n := range 6 {
		if !stream.Sleep(ctx, 400*time.Millisecond) {
			t.Fatal("out of time")
		}
		r.Proc.Kill()
		if n%2 == 1 {
			r.killEarly(time.Duration(n) * 100 * time.Millisecond)
		}
		r.Start()
	}
	stop()
	await.Return(r.T, "the producers", producers.Wait)
	r.Publish(ctx, "weir.jobs.pay.slow", "slow-1", nil)
	r.Publish(ctx, "weir.jobs.pay.slow", "slow-2", nil) // waits for a day: show needs a key with a job
	r.awaitSettled(ctx, most)
	arrived := int64(len(r.API.All()))
	spent := r.verified("spend")
	t.Logf("%d calls arrived, the ledger says %d", arrived, spent/50_000)
	if spent < arrived*50_000 {
		t.Errorf("%d calls arrived, and the ledger counts %d", arrived, spent/50_000)
	}
	if most > 0 && arrived > int64(most) {
		t.Errorf("%d calls arrived for a budget of %d", arrived, most)
	}
	if lost := r.lost(ctx); spent > (arrived+lost)*50_000 {
		t.Errorf("%d calls are spent, %d arrived and at most %d others may have been under way", spent/50_000, arrived, lost)
	}
	if unknown := r.unknown(); line != "" && unknown > 0 {
		t.Errorf("%d jobs ended without anybody knowing whether they were called, and each could be called again", unknown)
	}
	r.agree(ctx)
	r.Proc.Kill() // a job may have had an intent, and is unknown then
	r.Start()
	r.stop() // perhaps before it was known what the one that was killed had used
	r.Start()
	r.agree(ctx)
}

// stop ends the process in order.
func (r *budgetRig) stop() {
	r.T.Helper()
	if err := r.Proc.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.T.Fatal(err)
	}
	await.Receive(r.T, "weir to end", r.Proc.Exited)
}

// awaitSettled blocks until nothing is left to be called but the job that waits for a day, or for a budget that is spent.
func (r *budgetRig) awaitSettled(ctx context.Context, most int) {
	r.T.Helper()
	for before := int64(-1); ; {
		if most == 0 && r.Queued() == 1 {
			return
		}
		if used := r.verified("spend"); most > 0 && used == before && used >= int64(most)*50_000 {
			return
		} else if most > 0 {
			before = used
		}
		if !stream.Sleep(ctx, 200*time.Millisecond) {
			r.T.Fatalf("%d jobs still wait", r.Queued())
		}
	}
}

// unknown returns how many jobs ended without its being known whether they were called.
func (r *budgetRig) unknown() (n int64) {
	r.T.Helper()
	for _, reasons := range r.Outcomes() {
		for _, reason := range reasons {
			if reason == "unknown" {
				n++
			}
		}
	}
	return n
}

// lost returns how many calls in the ledger may or may not have been made. No call is there twice.
func (r *budgetRig) lost(ctx context.Context) (n int64) {
	r.T.Helper()
	r.connected(ctx)
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	type call struct {
		stream string
		seq    uint64
		number int
	}
	seen := map[call]bool{}
	for _, c := range store.RecordsOf(r.T, js) {
		of := call{c.Stream, c.Seq, c.Call}
		if seen[of] {
			r.T.Errorf("call %d of job %s is in the ledger twice", c.Call, c.Job)
		}
		if seen[of] = true; c.Planned.IsZero() && c.Outcome != ledger.Done {
			n++
		}
	}
	return n
}

// connected waits until the process has come back.
func (r *budgetRig) connected(ctx context.Context) {
	r.T.Helper()
	for !r.NC.IsConnected() {
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			r.T.Fatal("waited in vain for the connection to come back")
		}
	}
}

// agree compares show, verify and the metric with the ledger's records.
func (r *budgetRig) agree(ctx context.Context) {
	r.T.Helper()
	r.connected(ctx)
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	sum, calls := int64(0), int64(0)
	spend := bucket.Limit{Name: "spend", Budget: &bucket.Budget{}}
	for _, c := range store.RecordsOf(r.T, js) {
		units, _ := c.Took(&spend)
		sum += units
		slid, _ := c.Took(&bucket.Limit{Name: "slide"})
		calls += slid
	}
	spent := r.verified("spend")
	if sum != spent {
		r.T.Errorf("verify says %d, the ledger's records add up to %d", spent, sum)
	}
	var shown, slide limitstate.LimitShown
	var metric float64
	limit, cancel := context.WithTimeout(ctx, weirtest.Patience)
	defer cancel()
	for { // both are looked at once a second
		shown, slide, metric = r.shown("slow", "spend"), r.shown("slow", "slide"), r.used("spend")
		if shown.Used == spent && slide.Used == calls && !shown.Bound && metric == float64(spent)/float64(shown.Count) {
			return
		}
		if !stream.Sleep(limit, 200*time.Millisecond) || r.T.Failed() {
			break
		}
	}
	r.T.Errorf("verify says %d, show %+v, the metric %g of it; %d calls, show %+v", spent, shown, metric, calls, slide)
}
