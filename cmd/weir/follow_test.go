package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/commands"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// applyConfig stores a configuration as `weir config apply` does, and returns its version. yaml gets the api's url for
// its %s.
func (r *rig) applyConfig(yaml string) uint64 {
	r.t.Helper()
	store := r.configStore()
	current, last, err := store.Newest(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	next := control.StoredConfig{YAML: fmt.Sprintf(yaml, r.api.URL()), From: "test", Who: "test", At: time.Now(), FileSum: current.FileSum}
	version, err := store.Put(r.t.Context(), next, last)
	if err != nil {
		r.t.Fatal(err)
	}
	return version
}

func (r *rig) configStore() control.ConfigStore {
	r.t.Helper()
	store, err := control.FindConfigStore(r.t.Context(), r.operators())
	if err != nil {
		r.t.Fatal(err)
	}
	return store
}

// versions is where the configuration's versions are kept.
func (r *rig) versions() jetstream.KeyValue {
	r.t.Helper()
	kv, err := r.operators().KeyValue(r.t.Context(), connect.ConfigBucket)
	if err != nil {
		r.t.Fatal(err)
	}
	return kv
}

// follow applies a configuration and waits until the worker runs by it. It returns the time it began and the time
// from which on it is certain that it does.
func (r *rig) follow(yaml string) (from, by int64) {
	r.t.Helper()
	from = int64(time.Since(r.api.Started()))
	version := r.applyConfig(yaml)
	r.eventually("the configuration to be followed", func() bool { return r.worker.ConfigState().Version >= version })
	return from, int64(time.Since(r.api.Started()))
}

func (r *rig) submitMany(api, key string, n int) {
	r.t.Helper()
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = jobFor(api, key, "")
	}
	fillTaken(r.t, r.nc, jobs)
}

func stampsOf(arrivals []fakeapi.Arrival, keep func(at int64) bool) []bucket.Arrival {
	var stamps []bucket.Arrival
	for _, a := range arrivals {
		if keep(a.At) {
			stamps = append(stamps, bucket.Arrival{At: a.At, End: a.End})
		}
	}
	return stamps
}

func (r *rig) checkStamps(what string, stamps []bucket.Arrival, l bucket.Limit) {
	r.t.Helper()
	r.referee().hold(what, stamps, l, 30*time.Millisecond)
}

func everySecond(n int64) bucket.Limit {
	return bucket.Limit{Name: "rate", Rate: &bucket.Rate{Count: n, Per: time.Second, Burst: 1}}
}

const oneAPI = `
apis:
  pay:
    url: %%s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: %s, capacity: 500, in_flight: 8}
    jitter: 30ms # the machine that runs the tests is small and busy
`

// TestRateFollowed: a raised rate helps jobs that wait already, a lowered one binds them, and no window ever sees more
// than the rate of its time.
func TestRateFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "1/24h"))
	const jobs = 450 // some must still wait when a configuration is followed, also where that takes eight seconds
	r.submitMany("pay", "k", jobs)
	r.awaitCalls(1) // the next one would be tomorrow

	r.follow(fmt.Sprintf(oneAPI, "50/s"))
	r.awaitCalls(50)
	_, lowered := r.follow(fmt.Sprintf(oneAPI, "20/s"))
	before := len(r.api.All())
	r.awaitCalls(before + 10)
	r.follow(fmt.Sprintf(oneAPI, "200/s"))
	arrivals := r.awaitCalls(jobs)

	r.checkStamps("all", stampsOf(arrivals, func(int64) bool { return true }), everySecond(200))
	r.checkStamps("while 20/s", stampsOf(arrivals[:before+10], func(at int64) bool { return at > lowered }), everySecond(20))
	if n := len(arrivals); n != jobs {
		t.Errorf("%d calls of %d jobs", n, jobs)
	}
}

// TestSharedLimitsFollowed: limits that are added, swapped in their order and taken out, under jobs that wait.
func TestSharedLimitsFollowed(t *testing.T) {
	t.Parallel()
	const yaml = `
apis:
  pay:
    url: %%s
    price: 0.50
    bucket: {rate: 1000/s, capacity: 500}
    jitter: 30ms
    limits: [%s]
`
	// Calls last long enough for some to run over every change.
	r := newRig(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Latency: fakeapi.Latency{Mean: 20 * time.Millisecond},
	}, fmt.Sprintf(yaml, ""))
	r.follow(fmt.Sprintf(yaml, "{name: account, rate: 40/s}"))
	var queue []*nats.Msg
	const jobs, budget, early = 300, 100, 80 // fewer are there before the budget is than it buys, however long that takes to come
	for i := range jobs {
		queue = append(queue, jobFor("pay", fmt.Sprint("k", i%7), ""))
	}
	fillTaken(t, r.nc, queue[:early])
	r.awaitCalls(20)
	r.follow(fmt.Sprintf(yaml, "{name: spend, budget: 50.00/day, on_exhausted: dead_letter}, {name: account, rate: 40/s}"))
	fillTaken(t, r.nc, queue[early:])
	after := len(r.api.All())
	r.awaitCalls(after + 10)
	r.follow(fmt.Sprintf(yaml, "{name: account, rate: 40/s}, {name: spend, budget: 50.00/day, on_exhausted: dead_letter}, {name: few, in_flight: 2}"))
	limited := int64(time.Since(r.api.Started()))
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	arrivals := r.api.All()
	all := stampsOf(arrivals, func(int64) bool { return true })
	r.checkStamps("account", all, everySecond(40))
	limited += int64(100*time.Millisecond + r.referee().eps()) // what had its slot by then has come
	r.checkStamps("few", stampsOf(arrivals, func(at int64) bool { return at > limited }), bucket.Limit{Name: "few", InFlight: 2})
	if n, letters := len(arrivals), r.messages("WEIR_DEAD"); n+letters != jobs || n != budget {
		t.Errorf("%d calls and %d letters of %d jobs and a budget of %d calls, those before it came counted", n, letters, jobs, budget)
	}
}

// TestCapacityLowered below what waits: nothing is lost, nothing more is let in, and the stream keeps its bound.
func TestCapacityLowered(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    bucket: {rate: %s, capacity: %d}\n"
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(yaml, "1/h", 100))
	r.submitMany("pay", "k", 60)
	r.awaitCalls(1)
	r.follow(fmt.Sprintf(yaml, "1/h", 10))
	if a := r.submit("weir.jobs.pay.k", nil, nil); a.Error == nil || a.Error.ErrCode != 20429 || !strings.Contains(a.Error.Description, "of 10") {
		t.Errorf("a job for a bucket over its lowered capacity was not refused: %+v", a)
	}
	r.submitMany("pay", "other", 1)
	r.awaitCalls(2)
	r.eventually("the first job of the other key to be gone", func() bool { return r.waiting("pay") == 59 })
	r.submitMany("pay", "other", 10)
	if a := r.submit("weir.jobs.pay.other", nil, nil); a.Error == nil || a.Error.ErrCode != 20429 {
		t.Errorf("the eleventh job of a bucket of 10 was not refused: %+v", a)
	}
	r.follow(fmt.Sprintf(yaml, "1/h", 1000))
	r.submitMany("pay", "k", 100) // more than ever fitted
	r.follow(fmt.Sprintf(yaml, "1000/s", 10))
	r.awaitCalls(171)
	r.eventually("an empty queue", func() bool { return r.waiting("pay") == 0 })
	if n := len(r.api.All()); n != 171 {
		t.Errorf("%d calls of 171 jobs", n)
	}
}

// TestAPIsComeAndGo: a new api works at once; one that is taken out refuses new jobs and ends those it has.
func TestAPIsComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "20/s"))
	r.submitMany("pay", "k", 30)
	r.follow("\napis:\n  sms:\n    url: %s/sms\n    bucket: {rate: 50/s, capacity: 9}\n    limits: [{name: all, rate: 50/s}]\n")
	if a := r.submit("weir.jobs.pay.k", nil, nil); a.Error == nil || a.Error.ErrCode != 20404 {
		t.Errorf("an api that is not configured any more takes jobs: %+v", a)
	}
	r.submitMany("sms", "k", 5)
	r.awaitCalls(35)
	r.eventually("empty queues", func() bool { return r.waiting("pay") == 0 && r.waiting("sms") == 0 })
	r.follow("\napis:\n  pay:\n    url: %s/again\n    bucket: {rate: 50/s, capacity: 9}\n")
	r.submitMany("pay", "k", 1)
	arrivals := r.awaitCalls(36)
	if path := arrivals[35].Path; path != "/again/k" {
		t.Errorf("an api that came back is called by its former configuration, at %s", path)
	}
}

// TestJobsOfARemovedAPI: they are called until weir restarts, and then wait until the api is back; and whatever tells of it says so.
func TestJobsOfARemovedAPI(t *testing.T) {
	t.Parallel()
	const pay, sms = "  pay:\n    url: %s\n    bucket: {rate: 1/s, capacity: 9}\n", "  sms:\n    url: %s/sms\n    bucket: {rate: 1/s, capacity: 9}\n"
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "\napis:\n"+pay)
	r.said = &book{}
	r.stop()
	r.start()
	const jobs = 9 // some must still wait when the api is gone
	r.submitMany("pay", "k", jobs)
	r.awaitCalls(1)
	without := "\napis:\n" + sms
	r.follow(without)
	before := len(r.api.All())
	r.awaitCalls(before + 1)
	r.eventually("the log to say so", func() bool { return strings.Contains(r.said.String(), "they are called until weir restarts") })
	r.stop()
	with := strings.Replace(r.yaml, "1/s", "100/s", 1)
	r.yaml = fmt.Sprintf(without, r.api.URL())
	called := len(r.api.All())
	r.start()
	r.submitMany("sms", "k", 3)
	r.awaitCalls(called + 3)
	if n := r.waiting("pay"); n != jobs-called || len(r.api.All()) != called+3 {
		t.Errorf("%d of %d jobs wait after %d calls and a restart", n, jobs, called)
	}
	r.stop()
	r.yaml = with
	r.start()
	r.awaitCalls(jobs + 3)

	const says = "are called until weir restarts"
	for of, text := range map[string]string{
		"config apply --help": longHelp(t, "config", "apply"), "weir help configuration": mustRead(t, repository+"/cmd/weir/internal/help/configuration.md"),
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), says) {
			t.Errorf("%s does not say that jobs of an api that is taken out %s", of, says)
		}
	}
}

// TestWaitingJobsGetNewTerms: what waits, also what is ready for its call, is called as the present configuration says.
func TestWaitingJobsGetNewTerms(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s%s\n    headers: {X-Version: %q}\n    bucket: {rate: %s, capacity: 9, in_flight: 4}\n"
	old, err := fakeapi.Start(fakeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		strings.ReplaceAll(fmt.Sprintf(yaml, "/old", "1", "1/3s"), "%s/old", old.URL()+"/old%.0s"))
	const jobs = 8
	r.submitMany("pay", "k", jobs)
	r.eventually("the first call", func() bool { return len(old.All()) > 0 })
	r.follow(fmt.Sprintf(yaml, "/new", "2", "100/s"))
	followed := time.Since(old.Started())
	r.eventually("all calls", func() bool { return len(old.All())+int(r.api.Totals().Ended) >= jobs })
	before := old.All()
	if most := 1 + int((followed+r.referee().eps()-time.Duration(before[0].At))/(3*time.Second)); len(before) > most || most >= jobs {
		t.Errorf("%d calls as configured before, which had %s for calls every 3 s", len(before), followed-time.Duration(before[0].At))
	}
	for _, a := range r.api.All() {
		if a.Path != "/new/k" || a.Header("X-Version") != "2" {
			t.Errorf("called %s, version %q", a.Path, a.Header("X-Version"))
		}
	}
}

// TestIdempotencySwitchedOff: a call that may have been processed is not followed by one without an idempotency key.
func TestIdempotencySwitchedOff(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    retry: {min: %s}\n    bucket: {rate: 100/s, capacity: 9}\n%s"
	answer := make(chan struct{})
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{Status: 500}
	}},
		fmt.Sprintf(yaml, "1s", "    idempotency: {header: Idempotency-Key}\n"))
	r.submitMany("pay", "k", 1)
	r.eventually("the first call", func() bool { return len(r.api.All()) == 1 })
	r.putPause("") // it is not called again before the change, however long that takes
	close(answer)
	r.eventually("its record", func() bool { return len(r.ledger("pay", "k")) == 1 })
	r.follow(fmt.Sprintf(yaml, "1ms", ""))
	r.stop() // the doubt outlives a restart
	r.yaml = fmt.Sprintf(fmt.Sprintf(yaml, "1ms", ""), r.api.URL())
	r.start()
	if err := r.control().Delete(t.Context(), control.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.submitMany("pay", "other", 1)
	r.awaitCalls(2)
	r.eventually("two letters", func() bool { return r.messages("WEIR_DEAD") == 2 })
	if n := len(r.api.All()); n != 2 {
		t.Errorf("%d calls of two jobs that may not be repeated", n)
	}
}

// TestInvalidConfigChangesNothing: neither one that is no configuration, nor one this worker cannot run by.
func TestInvalidConfigChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s"))
	versions := r.versions()
	present := r.worker.ConfigState().Version
	for _, value := range []string{
		"no JSON at all",
		`{"yaml":"apis: {pay: {url: nowhere}}"}`,
		`{"yaml":"apis:\n  new:\n    url: https://api.example.com\n    headers: {X: \"${env:WEIR_TEST_NO_SUCH_SECRET}\"}\n    bucket: {rate: 1/s, capacity: 1}\n"}`,
	} {
		if _, err := versions.Put(t.Context(), "current", []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := versions.Delete(t.Context(), "current"); err != nil {
		t.Fatal(err)
	}
	r.eventually("every version to be looked at", func() bool { return r.worker.ConfigState().Seen == present+4 })
	if got := r.worker.ConfigState().Version; got != present {
		t.Errorf("version %d is in force, want %d", got, present)
	}
	r.submitMany("pay", "k", 5)
	r.awaitCalls(5)
	r.stop()
	r.start() // a restart is not stopped by it either
	r.submitMany("pay", "k", 5)
	r.awaitCalls(10)
	r.follow(fmt.Sprintf(oneAPI, "200/s")) // and a valid one mends it
}

// TestRestartKeepsWhatWasApplied as long as the file stays the same, and applies a file that has changed.
func TestRestartKeepsWhatWasApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "10/s"))
	rate := func() string {
		return config.FormatRate(r.worker.Config().APIs[0].Rules.Key.Rate)
	}
	r.follow(fmt.Sprintf(oneAPI, "30/s"))
	r.stop()
	r.start()
	if got := rate(); got != "30/s" {
		t.Errorf("a restart with the same file runs at %s, want what was applied, 30/s", got)
	}
	events := r.configEvents()
	r.stop()
	r.yaml = strings.ReplaceAll(r.yaml, "10/s", "40/s")
	r.start()
	if got := rate(); got != "40/s" {
		t.Errorf("a restart with another file runs at %s, want the file's 40/s", got)
	}
	r.eventually("its event", func() bool { return len(r.configEvents()) > len(events) })
	last := r.configEvents()[len(events)]
	if last.OldVersion != 2 || last.NewVersion != 3 || last.Changes != 1 || last.Who == "" {
		t.Errorf("the event of the file says %+v", last)
	}
	if _, err := r.configStore().Put(t.Context(), control.StoredConfig{}, 2); !errors.Is(err, control.ErrLostRace) {
		t.Errorf("a change of a version that is not the last one: %v", err)
	}
}

// configEvents are the config events so far.
func (r *rig) configEvents() []control.ConfigChange {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	stream, err := r.js.Stream(ctx, "WEIR_EVENTS")
	if err != nil {
		r.t.Fatal(err)
	}
	var told []control.ConfigChange
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil || !strings.HasPrefix(msg.Subject, "weir.events.config.") {
			continue
		}
		var event struct {
			Type, Source string
			Data         control.ConfigChange
		}
		if err := json.Unmarshal(msg.Data, &event); err != nil || event.Type != "weir.config.v1" {
			r.t.Fatalf("%s: %v", msg.Data, err)
		}
		told = append(told, event.Data)
	}
	return told
}

// TestSecretsOverNATS: whoever may apply a configuration cannot have weir send a secret of its user to an address of his own, unless
// the worker's own file or WEIR_SECRETS allows that secret.
func TestSecretsOverNATS(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    headers: {X-Secret: \"${env:%s}\"}\n    bucket: {rate: 100/s, capacity: 9}\n"
	r := newRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(yaml, "WEIR_TEST_OWN"))
	theirs := r.applyConfig(fmt.Sprintf(yaml, "WEIR_TEST_STOLEN"))
	r.eventually("the version to be looked at", func() bool { return r.worker.ConfigState().Seen == theirs })
	if got := r.worker.ConfigState().Version; got == theirs {
		t.Error("a configuration is in force that refers to a secret nobody allowed")
	}
	r.submitMany("pay", "k", 1)
	if a := r.awaitCalls(1)[0]; a.Header("X-Secret") != "own" {
		t.Errorf("the api was sent %q", a.Header("X-Secret"))
	}
	r.stop()
	r.secrets = []string{"WEIR_TEST_STOLEN"}
	r.start()
	r.follow(fmt.Sprintf(yaml, "WEIR_TEST_STOLEN"))
	r.follow(fmt.Sprintf(yaml, "WEIR_TEST_OWN")) // of its file
}

// longHelp returns what --help says of a command before its flags.
func longHelp(t *testing.T, path ...string) string {
	t.Helper()
	cmd, _, err := commands.Root().Find(path)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Long
}
