package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
)

// termsRig is a weir process whose api answers nothing until it is let, and whose configuration changes.
type termsRig struct {
	*weirtest.KillRig
	release func()
}

const keyed = "\n    idempotency: {header: Idempotency-Key}"

// newTermsRig starts it at a rate, with more lines of the api. No call ends by itself.
func newTermsRig(t *testing.T, rate, lines string) *termsRig {
	t.Helper()
	released := make(chan struct{})
	r := &termsRig{release: sync.OnceFunc(func() { close(released) })}
	t.Cleanup(r.release)
	r.KillRig = weirtest.NewKillRig(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Idempotency-Key", "Other-Key"},
		Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
			select {
			case <-released:
			case <-ctx.Done():
			}
			return fakeapi.Behaviour{}
		},
	}, termsYAML(rate, lines))
	return r
}

func termsYAML(rate, lines string) string {
	return "apis:\n  pay:\n    url: %s\n    price: 0.40\n    timeout: 100s\n    bucket: {rate: " + rate + ", capacity: 100, in_flight: 20}" + lines + "\n"
}

// write changes the file that the next start reads.
func (r *termsRig) write(rate, lines string) {
	r.T.Helper()
	file, _ := strings.CutPrefix(r.Env[0], "WEIR_CONFIG=")
	weirtest.WriteFile(r.T, file, fmt.Sprintf(termsYAML(rate, lines), r.API.URL()))
}

// apply puts the file in force without a restart.
func (r *termsRig) apply() {
	r.T.Helper()
	if got := r.command("config", "apply", "--yes"); got.Code != 0 {
		r.T.Fatalf("config apply: %+v", got)
	}
}

func (r *termsRig) command(args ...string) program.Ended {
	return program.Command(r.T, append(slices.Clone(r.Env), "WEIR_NATS_URL=nats://"+r.Addr), args...)
}

// arrived waits until the api has been called n times.
func (r *termsRig) arrived(ctx context.Context, n int) {
	r.T.Helper()
	for len(r.API.All()) < n {
		if !stream.Sleep(ctx, 5*time.Millisecond) {
			r.T.Fatalf("waited for %d calls, saw %d", n, len(r.API.All()))
		}
	}
}

// drained waits until no job waits.
func (r *termsRig) drained(ctx context.Context) {
	r.T.Helper()
	for r.Queued() != 0 {
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			r.T.Fatalf("%d jobs still wait", r.Queued())
		}
	}
}

// seenJob is what was seen of one job.
type seenJob struct {
	calls int
	keys  []string
	ended []string
}

func (r *termsRig) seen() map[string]*seenJob {
	r.T.Helper()
	jobs := map[string]*seenJob{}
	for id, ended := range r.Outcomes() {
		jobs[id] = &seenJob{ended: ended}
	}
	for _, a := range r.API.All() {
		j := jobs[a.Key]
		if j == nil {
			j = &seenJob{}
			jobs[a.Key] = j
		}
		j.calls++
		for _, name := range []string{"Idempotency-Key", "Other-Key"} {
			if v := a.Header(name); v != "" && !slices.Contains(j.keys, name+": "+v) {
				j.keys = append(j.keys, name+": "+v)
			}
		}
	}
	return jobs
}

// verified runs weir verify and returns what it says of the api.
func (r *termsRig) verified() (v verify.Report) {
	r.T.Helper()
	got := r.command("verify", "--json", "--since", "1h")
	if err := json.Unmarshal([]byte(got.Stdout), &v); err != nil {
		r.T.Fatalf("%v: %+v", err, got)
	}
	return v
}

// TestNoSecondCallWithoutItsKey: calls that carried a key are not followed by calls without one, when the api stops being
// idempotent while they run and the worker is killed.
func TestNoSecondCallWithoutItsKey(t *testing.T) {
	t.Parallel()
	const jobs = 12
	r := newTermsRig(t, "100/s", keyed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range jobs {
		id := fmt.Sprint("job-", i)
		r.Publish(ctx, "weir.jobs.pay."+id, id, nil)
	}
	r.arrived(ctx, jobs)
	r.write("100/s", "")
	r.apply()
	r.Proc.Kill()
	r.release()
	r.Start()
	r.drained(ctx)
	for id, j := range r.seen() {
		if j.calls != 1 || !slices.Equal(j.ended, []string{"unknown"}) {
			t.Errorf("%s was called %d times and ended as %v", id, j.calls, j.ended)
		}
	}
	if n := len(r.API.All()); n != jobs {
		t.Errorf("%d calls of %d jobs", n, jobs)
	}
}

// TestLostCallKeepsItsInterval: a call that ran when its worker was killed counts for its key's pace, and stands in the ledger,
// whatever the api was when it began.
func TestLostCallKeepsItsInterval(t *testing.T) {
	t.Parallel()
	const interval = 6 * time.Second
	for _, c := range []struct{ name, then, lost string }{{"still idempotent", keyed, "retry"}, {"no longer", "", "unknown"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newTermsRig(t, "1/6s", keyed)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r.Publish(ctx, "weir.jobs.pay.k", "first", nil)
			r.arrived(ctx, 1)
			r.Publish(ctx, "weir.jobs.pay.k", "second", nil)
			r.write("1/6s", c.then)
			r.apply()
			r.Proc.Kill()
			r.release()
			r.Start()
			r.drained(ctx)
			all := r.API.All()
			for i := 1; i < len(all); i++ {
				if gap := time.Duration(all[i].At - all[i-1].At); gap < interval-r.Referee().Eps() {
					t.Errorf("call %d came %s after the one before", i+1, gap)
				}
			}
			v := r.verified()
			if v.Calls+v.Unplaced != len(all) || v.Unplaced != 1 {
				t.Errorf("verify knows of %d calls and of %d that may have been made, the api saw %d", v.Calls, v.Unplaced, len(all))
			}
			if v.Verdict != "pass" {
				t.Errorf("verify says %+v", v)
			}
			js := servers.JetStreamOf(t, r.NC)
			records := store.RecordsOf(t, js)
			if i := slices.IndexFunc(records, func(c ledger.Record) bool { return c.Job == "first" }); i < 0 ||
				records[i].Outcome != c.lost || records[i].Billed != "unknown" || records[i].Price != "0.40" || !records[i].Planned.IsZero() {
				t.Errorf("the ledger of the first job begins with %+v", records)
			}
		})
	}
}

// TestOneKeyOverRestarts: a job whose call may have been processed is not called under another key, when the header or its form
// changes in the file that a start reads.
func TestOneKeyOverRestarts(t *testing.T) {
	t.Parallel()
	const jobs = 6
	r := newTermsRig(t, "100/s", keyed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range jobs {
		id := fmt.Sprint("job-", i)
		r.Publish(ctx, "weir.jobs.pay."+id, id, nil)
	}
	calls := jobs
	r.arrived(ctx, calls)
	for i, lines := range []string{"\n    idempotency: {header: Other-Key}", "\n    idempotency: {header: Other-Key, quoted: true}"} {
		r.Proc.Kill()
		r.write("100/s", lines)
		r.Start()
		id := fmt.Sprint("probe-", i)
		r.Publish(ctx, "weir.jobs.pay."+id, id, nil)
		for !slices.ContainsFunc(r.API.All(), func(a fakeapi.Arrival) bool { return a.Key == id }) {
			if !stream.Sleep(ctx, 5*time.Millisecond) {
				t.Fatalf("%s is not called", id)
			}
		}
	}
	r.release()
	r.drained(ctx)
	for id, j := range r.seen() {
		want := "unknown"
		if id == "probe-1" {
			want = "done"
		}
		if j.calls != 1 || len(j.keys) != 1 || !slices.Equal(j.ended, []string{want}) {
			t.Errorf("%s was called %d times under %q and ended as %v", id, j.calls, j.keys, j.ended)
		}
	}
}

// TestOneKeyOverChanges: a call that was answered 500 is repeated under its own key or not at all, when the configuration
// changes while the job waits; and under its own when the configuration is as it was.
func TestOneKeyOverChanges(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    retry: {min: 1s}\n    bucket: {rate: 100/s, capacity: 9}\n    idempotency: {header: %s}\n"
	var first sync.Map
	answer := map[string]chan struct{}{"changed": make(chan struct{}), "back": make(chan struct{})}
	r := weirtest.NewRig(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Other-Key"},
		Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if _, again := first.LoadOrStore(q.Key, true); again {
				return fakeapi.Behaviour{}
			}
			select {
			case <-answer[q.Key]:
			case <-ctx.Done():
			}
			return fakeapi.Behaviour{Status: 500}
		},
	}, fmt.Sprintf(yaml, "Idempotency-Key"))
	calls := func(key string) (keys []string) {
		for _, a := range r.API.Arrivals(key) {
			keys = append(keys, a.Header("Idempotency-Key")+a.Header("Other-Key"))
			if a.Header("Idempotency-Key") != "" && a.Header("Other-Key") != "" {
				t.Errorf("%s has two keys", key)
			}
		}
		return keys
	}
	// The api is paused before it answers: however long a change takes, the job waits until it is in force.
	changedWhileItWaits := func(key string, headers ...string) {
		t.Helper()
		r.Producer().SubmitMany("pay", key, 1)
		r.Eventually("the first call of "+key, func() bool { return len(r.API.Arrivals(key)) == 1 })
		r.WhilePaused(func() {
			close(answer[key])
			r.Eventually("the record of the first call", func() bool { return len(r.Store().Ledger("pay", key)) == 1 })
			for _, header := range headers {
				r.Follow(fmt.Sprintf(yaml, header))
			}
		})
		r.Store().Ended("pay", key, 1)
	}
	changedWhileItWaits("changed", "Other-Key")
	if n := len(calls("changed")); n != 1 {
		t.Errorf("a job was called %d times, the second time under another key", n)
	}
	for _, letter := range r.Store().Letters("pay", "changed") {
		if reason := letter.Header.Get("Weir-Dead-Reason"); reason != "unknown" {
			t.Errorf("it ended as %s", reason)
		}
	}

	changedWhileItWaits("back", "Idempotency-Key", "Other-Key")
	if n := len(calls("back")); n != 2 || len(r.Store().Results("pay", "back")) != 1 {
		t.Errorf("a job was called %d times and has %d results, when the configuration was what it had been", n, len(r.Store().Results("pay", "back")))
	}
}
