package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// memoryRig is a weir process whose resident memory is looked at from outside.
type memoryRig struct {
	t    *testing.T
	weir string // the binary that users run: with the race detector a process takes several times the memory
	api  *fakeapi.API
	dir  string
	env  []string
	addr string
	proc *program.Process
	nc   *nats.Conn
}

func newMemoryRig(t *testing.T) *memoryRig {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("what is resident is read from /proc")
	}
	api, err := fakeapi.Start(fakeapi.Options{Key: fakeapi.KeyFrom{Header: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // calls that a kill cut are errors to it
	r := &memoryRig{t: t, weir: buildWeir(t), api: api, dir: t.TempDir(), addr: servers.FreePort(t)}
	r.env = []string{
		"WEIR_CONFIG=" + filepath.Join(r.dir, "weir.yaml"), "WEIR_DATA_DIR=" + filepath.Join(r.dir, "data"), "WEIR_NATS_LISTEN=" + r.addr,
		"WEIR_HTTP_LISTEN=", "WEIR_PARTITIONS=4", "WEIR_DURABILITY=interval", "GOMEMLIMIT=",
	}
	return r
}

// buildWeir builds weir as a user does.
func buildWeir(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.CommandContext(await.Build(t), "go", "build", "-o", bin, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// start runs a weir with this much memory and this rate for all keys.
func (r *memoryRig) start(memory, rate string) {
	r.t.Helper()
	weirtest.WriteFile(r.t, filepath.Join(r.dir, "weir.yaml"), fmt.Sprintf(`
apis:
  credit:
    url: %s
    max_body: 1200KiB
    idempotency: {header: X-Id}
    jitter: 200ms
    timeout: 60s
    bucket: {rate: 1000/s, capacity: 1000, in_flight: 64}
    limits: [{name: all, rate: %s}]
`, r.api.URL(), rate))
	proc, err := program.StartProgram(r.t, r.weir, append([]string{"WEIR_MEMORY=" + memory}, r.env...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.proc = proc
	r.t.Cleanup(proc.Kill)
	if r.nc, err = nats.Connect("nats://"+r.addr, nats.Timeout(await.Patience), nats.ReconnectBufSize(-1)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.nc.Close)
}

func (r *memoryRig) kill() {
	r.nc.Close()
	r.proc.Kill()
}

// resident is what the process holds, and the most it has held.
func (r *memoryRig) resident() (now, most int64) {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.proc.Cmd.Process.Pid))
	if err != nil {
		r.t.Fatalf("weir is not there any more: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			most = n << 10
		}
	}
	return now, most
}

// fill submits jobs of a size, each under a key of its own, all at once, and submits again those that are answered with
// 503. It returns how often that was.
func (r *memoryRig) fill(jobs, size int) (refused int) {
	r.t.Helper()
	inbox := nats.NewInbox()
	answers, err := r.nc.SubscribeSync(inbox + ".*")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := answers.SetPendingLimits(-1, -1); err != nil {
		r.t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), size)
	send := func(i int) {
		m := &nats.Msg{
			Subject: fmt.Sprintf("weir.jobs.credit.key-%06d", i), Reply: fmt.Sprintf("%s.%d", inbox, i), Data: body,
			Header: nats.Header{"Nats-Msg-Id": {fmt.Sprintf("id-%06d", i)}},
		}
		if err := r.nc.PublishMsg(m); err != nil {
			r.t.Fatal(err)
		}
	}
	for i := range jobs {
		send(i)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), weirtest.Patience)
	defer cancel()
	for accepted := 0; accepted < jobs; {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			r.t.Fatalf("waited for answers to %d jobs, %d were accepted, %d refused: %v", jobs, accepted, refused, err)
		}
		var a producer.Answer
		if err := json.Unmarshal(m.Data, &a); err != nil {
			r.t.Fatal(err)
		}
		switch {
		case a.Error == nil:
			accepted++
		case a.Error.ErrCode == 20503:
			refused++
			i, _ := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
			<-time.After(10 * time.Millisecond) // as a producer waits before it tries again
			send(i)
		default:
			r.t.Fatalf("a job was refused with %+v", a.Error)
		}
	}
	return refused
}

// awaitCalls waits until so many calls have ended and holds them to one a job.
func (r *memoryRig) awaitCalls(jobs int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), weirtest.Patience)
	defer cancel()
	if err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(jobs) }); err != nil {
		r.t.Fatalf("waited for %d calls, saw %d: %v", jobs, len(r.api.All()), err)
	}
	if n := len(r.api.All()); n != jobs {
		r.t.Errorf("%d jobs took %d calls", jobs, n)
	}
}

// TestLargeBodiesWaitForRoom submits 150 bodies of 1 MB at once to a weir with a limit of 256 MiB, and makes a killed
// and restarted weir call them all at once. It stays below its limit, loses nothing, and releases the memory. If the
// disk is slower than the producer, some get 503 and are sent again. It is not parallel: beside tests that take both
// processors and the disk, the garbage collector once came too late, and weir took 2 % more than its limit.
func TestLargeBodiesWaitForRoom(t *testing.T) {
	const jobs, limit = 150, 256 << 20
	r := newMemoryRig(t)
	r.start("256MiB", "1/24h")
	refused := r.fill(jobs, 1_000_000)
	_, most := r.resident()
	t.Logf("filled: at most %d MB, %d refusals", most/1e6, refused)
	if most > limit {
		t.Errorf("filling takes %d MB of %d", most/1_000_000, limit/1_000_000)
	}
	r.kill()
	r.start("256MiB", "1000/s")
	r.awaitCalls(jobs)
	_, most = r.resident()
	t.Logf("drained: at most %d MB", most/1e6)
	if most > limit {
		t.Errorf("draining takes %d MB of %d", most/1_000_000, limit/1_000_000)
	}
	r.givesBack(most * 2 / 3)
}

// givesBack waits until no more than this is resident.
func (r *memoryRig) givesBack(least int64) {
	r.t.Helper()
	limit := time.After(weirtest.Patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now, _ := r.resident()
		if now <= least {
			r.t.Logf("given back: %d MB are left", now/1e6)
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			r.t.Fatalf("waited in vain for memory to be given back: %d MB are resident, want at most %d", now/1_000_000, least/1_000_000)
		}
	}
}

// TestOpensUnderLess fills a store under a large limit, and opens it and calls from it under a small one.
func TestOpensUnderLess(t *testing.T) {
	t.Parallel()
	const jobs, calls, limit = 25_000, 200, 128 << 20
	r := newMemoryRig(t)
	r.start("2GiB", "1/24h")
	r.fill(jobs, 20)
	r.kill()
	r.start("128MiB", "50/s")
	_, opened := r.resident()
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	if err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= calls }); err != nil {
		t.Fatalf("waited for %d calls, saw %d: %v", calls, len(r.api.All()), err)
	}
	_, most := r.resident()
	t.Logf("opened with %d MB, called with %d", opened/1_000_000, most/1_000_000)
	if most > limit {
		t.Errorf("opening takes %d MB and calling %d, of %d", opened/1_000_000, most/1_000_000, limit/1_000_000)
	}
	if left := r.left(ctx); left+len(r.api.All()) < jobs {
		t.Errorf("of %d jobs %d are left and %d were called", jobs, left, len(r.api.All()))
	}
}

// left is how many messages the queue holds.
func (r *memoryRig) left(ctx context.Context) (n int) {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	for p := range 4 {
		stream, err := js.Stream(ctx, fmt.Sprintf("WEIR_credit_%d", p))
		if err != nil {
			r.t.Fatal(err)
		}
		n += int(stream.CachedInfo().State.Msgs)
	}
	return n
}
