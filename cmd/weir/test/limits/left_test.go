package limits

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// account is a vendor's account that another program uses too: it takes its part when a period of the vendor begins.
type account struct {
	count, others int
	per           time.Duration
	once          bool // the other program uses only the first period

	mu      sync.Mutex // guards what follows
	began   time.Time  // of the present period; the first begins with the first call
	used    int
	refused int
	calls   int
}

// Answer is the script of the account's api. No header has a name by which weir holds calls without being told to.
func (a *account) Answer(context.Context, *fakeapi.Request) fakeapi.Behaviour {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.began.IsZero() {
		a.began, a.used = now, a.others
	}
	if since := now.Sub(a.began); since >= a.per {
		if a.began, a.used = a.began.Add(since.Truncate(a.per)), a.others; a.once {
			a.used = 0
		}
	}
	a.calls++
	status := http.StatusOK
	if a.used < a.count {
		a.used++
	} else {
		status = http.StatusTooManyRequests
		a.refused++
	}
	return fakeapi.Behaviour{Status: status, Header: []fakeapi.Field{
		{Name: "X-Left", Value: fmt.Sprint(a.count - a.used)},
		{Name: "X-Resets", Value: fmt.Sprintf("%.6f", a.began.Add(a.per).Sub(now).Seconds())},
	}}
}

// counted returns how many calls the vendor refused, and how many came.
func (a *account) counted() (refused, calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused, a.calls
}

// accountYAML calls one key's jobs one after the other, by a limit that is the vendor's.
const accountYAML = `
apis:
  pay:
    url: %%s
    bucket: {rate: 100/s, capacity: 500, in_flight: 1}
    retry: {min: 50ms, max: 100ms}
    limits: [{name: account, rate: 30/3s%s}]
`

const readsLeft = ", left: header:X-Left, left_until: header:X-Resets"

// TestAnotherProgramUsesTheAccount: if half of the account is another program's, the vendor refuses calls. If weir
// reads what is left, the vendor refuses none, and calls go on when the vendor's count begins anew.
func TestAnotherProgramUsesTheAccount(t *testing.T) {
	t.Parallel()
	const jobs = 40
	lay := map[string]func(*testing.T, *account, string) *weirtest.Rig{
		"process": func(t *testing.T, a *account, yaml string) *weirtest.Rig {
			t.Helper()
			return weirtest.NewRig(t, fakeapi.Options{Script: a.Answer}, yaml)
		},
		"redis": func(t *testing.T, a *account, yaml string) *weirtest.Rig {
			t.Helper()
			return weirtest.NewRedisRig(t, fakeapi.Options{Script: a.Answer}, yaml).Rig
		},
	}
	for where, rig := range lay {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			t.Run("unread", func(t *testing.T) {
				t.Parallel()
				a := &account{count: 30, others: 15, per: 3 * time.Second}
				r := rig(t, a, fmt.Sprintf(accountYAML, ""))
				submitMany(r, jobs)
				r.Eventually("a refused call", func() bool { refused, _ := a.counted(); return refused > 0 })
			})
			t.Run("read", func(t *testing.T) {
				t.Parallel()
				a := &account{count: 30, others: 15, per: 3 * time.Second}
				r := rig(t, a, fmt.Sprintf(accountYAML, readsLeft))
				submitMany(r, jobs)
				r.Store().Ended("pay", "k", jobs)
				if refused, calls := a.counted(); refused > 0 || calls != jobs {
					t.Errorf("%d calls for %d jobs, of which the vendor refused %d", calls, jobs, refused)
				}
			})
		})
	}
}

// TestExcessIsShown: while the vendor counts more than weir, commands, a metric and one event say so.
func TestExcessIsShown(t *testing.T) {
	t.Parallel()
	a := &account{count: 600, others: 595, per: 10 * time.Minute}
	r := weirtest.NewRig(t, fakeapi.Options{Script: a.Answer}, `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 500, in_flight: 1}
    limits: [{name: account, rate: 600/10m, burst: 20`+readsLeft+`}]
`)
	submitMany(r, 9)
	r.Eventually("the calls that are left", func() bool { _, calls := a.counted(); return calls == 5 })
	for _, command := range [][]string{{"status"}, {"show", "pay", "k"}, {"doctor"}} {
		r.Eventually(strings.Join(command, " ")+" to say what the vendor counts", func() bool {
			said, _ := r.CLI().Run(command...)
			_, after, found := strings.Cut(said, "the vendor counts ")
			return found && strings.Contains(after, " more than weir until ")
		})
	}
	r.Eventually("the metric", func() bool {
		return strings.Contains(r.HTTP().Get("/metrics"), `weir_limit_vendor_excess_units{api="pay",limit="account"} `)
	})
	events := func() int { return len(r.Store().Stored("WEIR_EVENTS", "weir.events.excess.pay._")) }
	r.Eventually("the event", func() bool { return events() == 1 })
	if refused, calls := a.counted(); refused > 0 || calls != 5 {
		t.Errorf("%d calls where five are left, of which the vendor refused %d", calls, refused)
	}
	if n := events(); n != 1 {
		t.Errorf("%d events of one change", n)
	}
}

// submitMany submits n jobs of one key, and expects a receipt for each.
func submitMany(r *weirtest.Rig, n int) {
	r.T.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = producer.JobFor("pay", "k", fmt.Sprint("job ", i))
	}
	producer.FillTaken(r.T, r.NC, jobs)
}

// TestLeftOutlivesAKill: a weir that is killed and started again waits for the vendor's next period, and then goes on.
func TestLeftOutlivesAKill(t *testing.T) {
	t.Parallel()
	const jobs = 5
	a := &account{count: 60, others: 59, per: 12 * time.Second, once: true}
	r := weirtest.NewKillRig(t, fakeapi.Options{Script: a.Answer}, `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 500, in_flight: 1}
    limits: [{name: account, rate: 60/12s`+readsLeft+`}]
`)
	ctx := await.Context(t, "a kill while the vendor has nothing left")
	r.Publish(ctx, "weir.jobs.pay.k", "first", nil)
	r.AwaitEmpty()
	control, err := servers.OperatorsAt(t, r.NC).KeyValue(ctx, connect.ControlBucket)
	if err != nil {
		t.Fatal(err)
	}
	for stored := false; !stored; {
		entry, err := control.Get(ctx, "limits.pay")
		stored = err == nil && strings.Contains(string(entry.Value()), `"excess"`)
		if !stored && !stream.Sleep(ctx, 50*time.Millisecond) {
			t.Fatalf("no checkpoint has what the vendor said: %v", context.Cause(ctx))
		}
	}
	for i := range jobs - 1 {
		r.Publish(ctx, "weir.jobs.pay.k", fmt.Sprint("job", i), nil)
	}
	r.Proc.Kill()
	r.Start()
	r.AwaitEmpty()
	if refused, calls := a.counted(); refused > 0 || calls != jobs {
		t.Errorf("%d calls for %d jobs, of which the vendor refused %d", calls, jobs, refused)
	}
}

// slowCalls is an api that answers its first two calls when the test says so: that nothing is left, and that much is.
type slowCalls struct {
	calls  atomic.Int32
	answer [2]chan struct{}
}

// Answer is the script.
func (s *slowCalls) Answer(ctx context.Context, r *fakeapi.Request) fakeapi.Behaviour {
	r.Body() // else the end of ctx is not noticed
	n, left := s.calls.Add(1), "80"
	if n <= 2 {
		left = []string{"0", "90"}[n-1]
		select {
		case <-s.answer[n-1]:
		case <-ctx.Done():
		}
	}
	return fakeapi.Behaviour{Header: []fakeapi.Field{{Name: "X-Left", Value: left}}}
}

// TestCallsGoOnWhenMoreIsLeft: a job of another key that waits for the vendor's next period is called as soon as the
// answer to a later call says that enough is left.
func TestCallsGoOnWhenMoreIsLeft(t *testing.T) {
	t.Parallel()
	s := &slowCalls{answer: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
	r := weirtest.NewRig(t, fakeapi.Options{Script: s.Answer}, `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 500, in_flight: 1}
    limits: [{name: account, quota: 100/30d, window: fixed, left: header:X-Left}]
`)
	for n, key := range []string{"a", "b"} {
		producer.FillTaken(t, r.NC, []*nats.Msg{producer.JobFor("pay", key, "job")})
		r.Eventually("its call", func() bool { return int(s.calls.Load()) == n+1 })
	}
	close(s.answer[0])
	r.Store().Ended("pay", "a", 1)
	producer.FillTaken(t, r.NC, []*nats.Msg{producer.JobFor("pay", "c", "job")})
	r.Eventually("the job to wait for the vendor", func() bool {
		said, _ := r.CLI().Run("show", "pay", "c")
		return strings.Contains(said, "limit account until")
	})
	if n := s.calls.Load(); n != 2 {
		t.Fatalf("%d calls where nothing is left", n)
	}
	close(s.answer[1])
	r.Eventually("the call", func() bool { return s.calls.Load() == 3 })
}
