package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"

	"github.com/nats-io/nats.go"
)

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
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "1/24h"))
	const jobs = 450 // some must still wait when a configuration is followed, also where that takes eight seconds
	r.Producer().SubmitMany("pay", "k", jobs)
	r.AwaitCalls(1) // the next one would be tomorrow

	r.Follow(fmt.Sprintf(oneAPI, "50/s"))
	r.AwaitCalls(50)
	_, lowered := r.Follow(fmt.Sprintf(oneAPI, "20/s"))
	before := len(r.API.All())
	r.AwaitCalls(before + 10)
	r.Follow(fmt.Sprintf(oneAPI, "200/s"))
	arrivals := r.AwaitCalls(jobs)

	r.Referee().CheckStamps("all", referee.StampsOf(arrivals, func(int64) bool { return true }), referee.EverySecond(200))
	r.Referee().CheckStamps("while 20/s", referee.StampsOf(arrivals[:before+10], func(at int64) bool { return at > lowered }), referee.EverySecond(20))
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
	r := weirtest.NewRig(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Latency: fakeapi.Latency{Mean: 20 * time.Millisecond},
	}, fmt.Sprintf(yaml, ""))
	r.Follow(fmt.Sprintf(yaml, "{name: account, rate: 40/s}"))
	var queue []*nats.Msg
	// early is less than budget: the budget pays for all jobs that come before it, however late it comes.
	const jobs, budget, early = 300, 100, 80
	for i := range jobs {
		queue = append(queue, producer.JobFor("pay", fmt.Sprint("k", i%7), ""))
	}
	producer.FillTaken(t, r.NC, queue[:early])
	r.AwaitCalls(20)
	spend := "{name: spend, budget: 50.00/day, tz: " + machine.Noon() + ", on_exhausted: dead_letter}"
	r.Follow(fmt.Sprintf(yaml, spend+", {name: account, rate: 40/s}"))
	producer.FillTaken(t, r.NC, queue[early:])
	after := len(r.API.All())
	r.AwaitCalls(after + 10)
	r.Follow(fmt.Sprintf(yaml, "{name: account, rate: 40/s}, "+spend+", {name: few, in_flight: 2}"))
	limited := int64(time.Since(r.API.Started()))
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	arrivals := r.API.All()
	all := referee.StampsOf(arrivals, func(int64) bool { return true })
	r.Referee().CheckStamps("account", all, referee.EverySecond(40))
	limited += int64(100*time.Millisecond + r.Referee().Eps()) // what had its slot by then has come
	r.Referee().CheckStamps("few", referee.StampsOf(arrivals, func(at int64) bool { return at > limited }), bucket.Limit{Name: "few", InFlight: 2})
	if n, letters := len(arrivals), r.Store().Messages("WEIR_DEAD"); n+letters != jobs || n != budget {
		t.Errorf("%d calls and %d letters of %d jobs and a budget of %d calls, those before it came counted", n, letters, jobs, budget)
	}
}

// TestCapacityLowered below what waits: nothing is lost, nothing more is let in, and the stream keeps its bound.
func TestCapacityLowered(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    bucket: {rate: %s, capacity: %d}\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(yaml, "1/h", 100))
	r.Producer().SubmitMany("pay", "k", 60)
	r.AwaitCalls(1)
	r.Follow(fmt.Sprintf(yaml, "1/h", 10))
	if a := r.Producer().Submit("weir.jobs.pay.k", nil, nil); a.Error == nil || a.Error.ErrCode != 20429 || !strings.Contains(a.Error.Description, "of 10") {
		t.Errorf("a job for a bucket over its lowered capacity was not refused: %+v", a)
	}
	r.Producer().SubmitMany("pay", "other", 1)
	r.AwaitCalls(2)
	r.Eventually("the first job of the other key to be gone", func() bool { return r.Store().Waiting("pay") == 59 })
	r.Producer().SubmitMany("pay", "other", 10)
	if a := r.Producer().Submit("weir.jobs.pay.other", nil, nil); a.Error == nil || a.Error.ErrCode != 20429 {
		t.Errorf("the eleventh job of a bucket of 10 was not refused: %+v", a)
	}
	r.Follow(fmt.Sprintf(yaml, "1/h", 1000))
	r.Producer().SubmitMany("pay", "k", 100) // more than ever fitted
	r.Follow(fmt.Sprintf(yaml, "1000/s", 10))
	r.AwaitCalls(171)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	if n := len(r.API.All()); n != 171 {
		t.Errorf("%d calls of 171 jobs", n)
	}
}

// TestAPIsComeAndGo: a new api works at once; one that is taken out refuses new jobs and ends those it has.
func TestAPIsComeAndGo(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "20/s"))
	r.Producer().SubmitMany("pay", "k", 30)
	r.Follow("\napis:\n  sms:\n    url: %s/sms\n    bucket: {rate: 50/s, capacity: 9}\n    limits: [{name: all, rate: 50/s}]\n")
	if a := r.Producer().Submit("weir.jobs.pay.k", nil, nil); a.Error == nil || a.Error.ErrCode != 20404 {
		t.Errorf("an api that is not configured any more takes jobs: %+v", a)
	}
	r.Producer().SubmitMany("sms", "k", 5)
	r.AwaitCalls(35)
	r.Eventually("empty queues", func() bool { return r.Store().Waiting("pay") == 0 && r.Store().Waiting("sms") == 0 })
	r.Follow("\napis:\n  pay:\n    url: %s/again\n    bucket: {rate: 50/s, capacity: 9}\n")
	r.Producer().SubmitMany("pay", "k", 1)
	arrivals := r.AwaitCalls(36)
	if path := arrivals[35].Path; path != "/again/k" {
		t.Errorf("an api that came back is called by its former configuration, at %s", path)
	}
}

// TestJobsOfARemovedAPI: they are called until weir restarts, and then wait until the api is back; and whatever tells of it says so.
func TestJobsOfARemovedAPI(t *testing.T) {
	t.Parallel()
	const pay, sms = "  pay:\n    url: %s\n    bucket: {rate: 1/s, capacity: 9}\n", "  sms:\n    url: %s/sms\n    bucket: {rate: 1/s, capacity: 9}\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "\napis:\n"+pay)
	r.Said = &program.Book{}
	r.Stop()
	r.Start()
	const jobs = 9 // some must still wait when the api is gone
	r.Producer().SubmitMany("pay", "k", jobs)
	r.AwaitCalls(1)
	without := "\napis:\n" + sms
	r.Follow(without)
	before := len(r.API.All())
	r.AwaitCalls(before + 1)
	r.Eventually("the log to say so", func() bool { return strings.Contains(r.Said.String(), "they are called until weir restarts") })
	r.Stop()
	with := strings.Replace(r.YAML, "1/s", "100/s", 1)
	r.YAML = fmt.Sprintf(without, r.API.URL())
	called := len(r.API.All())
	r.Start()
	r.Producer().SubmitMany("sms", "k", 3)
	r.AwaitCalls(called + 3)
	if n := r.Store().Waiting("pay"); n != jobs-called || len(r.API.All()) != called+3 {
		t.Errorf("%d of %d jobs wait after %d calls and a restart", n, jobs, called)
	}
	r.Stop()
	r.YAML = with
	r.Start()
	r.AwaitCalls(jobs + 3)

	const says = "are called until weir restarts"
	for of, text := range map[string]string{
		"config apply --help": longHelp(t, "config", "apply"), "weir help configuration": weirtest.MustRead(t, weirtest.Repository+"/cmd/weir/internal/cli/help/configuration.md"),
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
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}},
		strings.ReplaceAll(fmt.Sprintf(yaml, "/old", "1", "1/3s"), "%s/old", old.URL()+"/old%.0s"))
	const jobs = 8
	r.Producer().SubmitMany("pay", "k", jobs)
	r.Eventually("the first call", func() bool { return len(old.All()) > 0 })
	r.Follow(fmt.Sprintf(yaml, "/new", "2", "100/s"))
	followed := time.Since(old.Started())
	r.Eventually("all calls", func() bool { return len(old.All())+int(r.API.Totals().Ended) >= jobs })
	before := old.All()
	if most := 1 + int((followed+r.Referee().Eps()-time.Duration(before[0].At))/(3*time.Second)); len(before) > most || most >= jobs {
		t.Errorf("%d calls as configured before, which had %s for calls every 3 s", len(before), followed-time.Duration(before[0].At))
	}
	for _, a := range r.API.All() {
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
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{Status: 500}
	}},
		fmt.Sprintf(yaml, "1s", "    idempotency: {header: Idempotency-Key}\n"))
	r.Producer().SubmitMany("pay", "k", 1)
	r.Eventually("the first call", func() bool { return len(r.API.All()) == 1 })
	r.PutPause("") // it is not called again before the change, however long that takes
	close(answer)
	r.Eventually("its record", func() bool { return len(r.Store().Ledger("pay", "k")) == 1 })
	r.Follow(fmt.Sprintf(yaml, "1ms", ""))
	r.Stop() // the doubt outlives a restart
	r.YAML = fmt.Sprintf(fmt.Sprintf(yaml, "1ms", ""), r.API.URL())
	r.Start()
	if err := r.Control().Delete(t.Context(), admin.PauseEntry("pay", "")); err != nil {
		t.Fatal(err)
	}
	r.Producer().SubmitMany("pay", "other", 1)
	r.AwaitCalls(2)
	r.Eventually("two letters", func() bool { return r.Store().Messages("WEIR_DEAD") == 2 })
	if n := len(r.API.All()); n != 2 {
		t.Errorf("%d calls of two jobs that may not be repeated", n)
	}
}

// TestInvalidConfigChangesNothing: neither one that is no configuration, nor one this worker cannot run by.
func TestInvalidConfigChangesNothing(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "100/s"))
	versions := r.Versions()
	present := r.Worker.ConfigState().Version
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
	r.Eventually("every version to be looked at", func() bool { return r.Worker.ConfigState().Seen == present+4 })
	if got := r.Worker.ConfigState().Version; got != present {
		t.Errorf("version %d is in force, want %d", got, present)
	}
	r.Producer().SubmitMany("pay", "k", 5)
	r.AwaitCalls(5)
	r.Stop()
	r.Start() // a restart is not stopped by it either
	r.Producer().SubmitMany("pay", "k", 5)
	r.AwaitCalls(10)
	r.Follow(fmt.Sprintf(oneAPI, "200/s")) // and a valid one mends it
}

// TestRestartKeepsWhatWasApplied as long as the file stays the same, and applies a file that has changed.
func TestRestartKeepsWhatWasApplied(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(oneAPI, "10/s"))
	rate := func() string {
		return grammar.FormatRate(r.Worker.Config().APIs[0].Rules.Key.Rate)
	}
	r.Follow(fmt.Sprintf(oneAPI, "30/s"))
	r.Stop()
	r.Start()
	if got := rate(); got != "30/s" {
		t.Errorf("a restart with the same file runs at %s, want what was applied, 30/s", got)
	}
	events := r.Store().ConfigEvents()
	r.Stop()
	r.YAML = strings.ReplaceAll(r.YAML, "10/s", "40/s")
	r.Start()
	if got := rate(); got != "40/s" {
		t.Errorf("a restart with another file runs at %s, want the file's 40/s", got)
	}
	r.Eventually("its event", func() bool { return len(r.Store().ConfigEvents()) > len(events) })
	last := r.Store().ConfigEvents()[len(events)]
	if last.OldVersion != 2 || last.NewVersion != 3 || last.Changes != 1 || last.Who == "" {
		t.Errorf("the event of the file says %+v", last)
	}
	if _, err := r.ConfigStore().Put(t.Context(), admin.StoredConfig{}, 2); !errors.Is(err, admin.ErrLostRace) {
		t.Errorf("a change of a version that is not the last one: %v", err)
	}
}

// TestSecretsOverNATS: a client that may apply a configuration cannot make weir send one of weir's secrets to another
// address, unless the worker's own file or WEIR_SECRETS allows that secret.
func TestSecretsOverNATS(t *testing.T) {
	t.Parallel()
	const yaml = "\napis:\n  pay:\n    url: %%s\n    headers: {X-Secret: \"${env:%s}\"}\n    bucket: {rate: 100/s, capacity: 9}\n"
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, fmt.Sprintf(yaml, "SECRET_OF_OWN"))
	theirs := r.ApplyConfig(fmt.Sprintf(yaml, "SECRET_OF_STOLEN"))
	r.Eventually("the version to be looked at", func() bool { return r.Worker.ConfigState().Seen == theirs })
	if got := r.Worker.ConfigState().Version; got == theirs {
		t.Error("a configuration is in force that refers to a secret that is not allowed")
	}
	r.Producer().SubmitMany("pay", "k", 1)
	if a := r.AwaitCalls(1)[0]; a.Header("X-Secret") != "own" {
		t.Errorf("the api was sent %q", a.Header("X-Secret"))
	}
	r.Stop()
	r.Secrets = []string{"SECRET_OF_STOLEN"}
	r.Start()
	r.Follow(fmt.Sprintf(yaml, "SECRET_OF_STOLEN"))
	r.Follow(fmt.Sprintf(yaml, "SECRET_OF_OWN")) // of its file
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
