package jobs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/store"

	"github.com/nats-io/nats.go"
)

// TestNothingLeft lets an answer in order say that no call is left, in several spellings: what it holds is not called
// before its window opens again, also over a restart.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, order string
		holds       string
		least       time.Duration
		restart     bool
	}{
		{"draft", `header=RateLimit: "burst"\;r=0`, "key", 0, false},
		{"old", "header=X-RateLimit-Remaining: 0;header=X-RateLimit-Reset: 2", "key", 2 * time.Second, false},
		{"old, the api", "header=X-RateLimit-Remaining: 0;header=X-RateLimit-Reset: 2", "api", 2 * time.Second, false},
		{"go", "header=x-ratelimit-remaining-requests: 0;header=x-ratelimit-reset-requests: 1.5s", "key", 1500 * time.Millisecond, false},
		{"503 with a reset alone", "status=503;header=X-RateLimit-Reset: 1", "api", time.Second, false},
		{"429 by the api's clock", "status=429;header=X-RateLimit-Remaining: 0;header=X-RateLimit-Reset: 1772370002;header=Date: Sun, 01 Mar 2026 13:00:00 GMT", "api", 2 * time.Second, false},
		{"pair", "header=X-Shop-Api-Call-Limit: 40/40", "key", 400 * time.Millisecond, false},
		{"restart", "header=RateLimit-Remaining: 0;header=RateLimit-Reset: 7", "key", 7 * time.Second, true},
		{"restart, the api", "header=RateLimit-Remaining: 0;header=RateLimit-Reset: 7", "api", 7 * time.Second, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			api := weirtest.StartOrdered(t, map[string][]string{"spent": {c.order}})
			r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 3, min: 400ms, max: 1s, hold: %s}
`, api.URL(), c.holds))
			events, err := r.NC.SubscribeSync("weir.events.*.pay.>")
			if err != nil {
				t.Fatal(err)
			}
			r.Producer().Pay("spent", "first")
			r.Store().Ended("pay", "spent", 1)
			if c.least > 0 {
				checkEvent(t, events, "held", map[string]string{"key": "spent", "api": "_"}[c.holds])
			}
			if c.restart {
				r.Stop()
				r.Start()
			}
			r.Producer().Pay("spent", "second")
			sent := int64(time.Since(api.Started()))
			r.Producer().Pay("other", "other")
			if c.holds == "key" {
				r.Store().Ended("pay", "other", 1)
			}
			r.Store().Ended("pay", "spent", 2)
			r.Store().Ended("pay", "other", 1)
			r.Referee().CheckHeld(c.holds, c.least, sent)
		})
	}
}

// startBroken starts an api that fails as ordered while it is broken.
func startBroken(t *testing.T, o fakeapi.Options, order string) (api *fakeapi.API, broken *atomic.Bool) {
	t.Helper()
	failing, err := fakeapi.ParseBehaviour(order)
	if err != nil {
		t.Fatal(err)
	}
	broken = new(atomic.Bool)
	broken.Store(true)
	o.Key = fakeapi.KeyFrom{Segment: -1}
	o.Script = func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
		if broken.Load() {
			return failing
		}
		return fakeapi.Behaviour{}
	}
	if api, err = fakeapi.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api, broken
}

const breakerYAML = `
apis:
  pay:
    url: %s
    timeout: %s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    limits: [{name: few, in_flight: 2}]
    retry: {attempts: 3, min: 5ms, max: 20ms}
    breaker: {failures: 3, min: 300ms, max: 600ms}
`

// TestBreaker breaks an api until the breaker has opened several times in a row. Meanwhile one call at a time probes
// the api, each with another job if there are several. When the api works again, every job is done.
func TestBreaker(t *testing.T) {
	t.Parallel()
	const jobs, probes, attempts = 20, 5, 7
	for what, order := range map[string]string{"500": "status=500", "reset": "reset=body", "hang": "hang"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			api, broken := startBroken(t, fakeapi.Options{}, order)
			r := weirtest.RigOn(t, api, fmt.Sprintf(strings.Replace(breakerYAML, "attempts: 3", fmt.Sprint("attempts: ", attempts), 1), api.URL(), "100ms"))
			events, err := r.NC.SubscribeSync("weir.events.*.pay.>")
			if err != nil {
				t.Fatal(err)
			}
			for i := range jobs {
				r.Producer().Pay(fmt.Sprintf("key-%d", i%10), fmt.Sprintf("job-%d", i))
			}
			checkEvent(t, events, "held", "_")
			opened := len(r.API.All())
			// A call that began before the breaker opened may arrive first.
			r.Eventually("some probes", func() bool { return len(r.API.All()) > opened+probes })
			failed := r.API.All()
			broken.Store(false)
			for k := range 10 {
				r.Store().Ended("pay", fmt.Sprintf("key-%d", k), jobs/10)
			}
			const shut = 225 * time.Millisecond // at least: three quarters of min
			tries, eps := failed[len(failed)-probes:], r.Referee().Eps()
			for i := range tries[1:] {
				if gap := time.Duration(tries[i+1].At - tries[i].At); gap < shut-eps {
					t.Errorf("two calls %v apart while the breaker was open", gap)
				}
			}
			took := time.Duration(failed[len(failed)-1].At-failed[0].At) + eps
			if most := 3 + 2 + 1 + int(took/shut); len(failed) > most {
				t.Errorf("%d calls failed in %v: three open the breaker, two may run at once, and one tries it then", len(failed), took)
			}
			for k := range 10 {
				for _, letter := range r.Store().Letters("pay", fmt.Sprintf("key-%d", k)) {
					t.Errorf("a job was given up while its api was broken: %v", letter.Header)
				}
				for _, result := range r.Store().Results("pay", fmt.Sprintf("key-%d", k)) {
					if n := store.Number(t, result.Header, "Weir-Attempts"); n > attempts {
						t.Errorf("%d attempts", n)
					}
				}
			}
			r.Eventually("the event that it is over", func() bool {
				msg, err := events.NextMsg(time.Second)
				return err == nil && msg.Subject == "weir.events.resumed.pay._"
			})
		})
	}
}

// TestProbesAreAttempts: a job that alone tries whether its api works again is called no more often than it has attempts.
func TestProbesAreAttempts(t *testing.T) {
	t.Parallel()
	api, _ := startBroken(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "status=500")
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 4, min: 5ms, max: 20ms}
    breaker: {failures: 2, min: 20ms, max: 40ms}
`, api.URL()))
	r.Producer().Pay("k", "one")
	r.Store().Ended("pay", "k", 1)
	letters := r.Store().Letters("pay", "k")
	if len(letters) != 1 || letters[0].Header.Get("Weir-Dead-Reason") != "exhausted" || letters[0].Header.Get("Weir-Dead-Attempts") != "4" {
		t.Errorf("it ended as %v", letters)
	}
	if n := len(api.All()); n != 4 {
		t.Errorf("%d calls of a job with 4 attempts", n)
	}
}

// TestFailureThatAsksToWait: a call that failed is made again no sooner than the answer asked for, however short the job's own patience.
func TestFailureThatAsksToWait(t *testing.T) {
	t.Parallel()
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1},
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if q.Number == 1 {
				return fakeapi.Behaviour{Status: http.StatusInternalServerError, RetryAfter: "2"}
			}
			return fakeapi.Behaviour{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r := weirtest.RigOn(t, api, fmt.Sprintf(breakerYAML, api.URL(), "10s"))
	r.Producer().Pay("k", "one")
	r.Store().Ended("pay", "k", 1)
	all := api.All()
	if len(all) != 2 {
		t.Fatalf("%d calls", len(all))
	}
	if gap := time.Duration(all[1].At - all[0].At); gap < 2*time.Second-r.Referee().Eps() {
		t.Errorf("called again after %s, the api asked for 2 s", gap)
	}
}

// TestResumeTriesAtOnce: after an operator resumes an api, calls do not wait for a breaker that would be open for an
// hour, or for a job's own backoff.
func TestResumeTriesAtOnce(t *testing.T) {
	t.Parallel()
	api, broken := startBroken(t, fakeapi.Options{}, "status=500")
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 1000/s, capacity: 50}
    retry: {attempts: 9, min: 1h, max: 1h}
    breaker: {failures: 1, min: 1h, max: 1h}
`, api.URL()))
	env := []string{"WEIR_NATS_URL=" + r.Worker.NATSURL(), "WEIR_REPLICAS=1"}
	if got := program.Command(t, env, "resume", "pay"); got.Code != 3 {
		t.Errorf("nothing is to be resumed: %+v", got)
	}
	r.Producer().Pay("k", "one")
	for n := range 2 { // still broken, and then not
		r.AwaitCalls(1 + n)
		broken.Store(n == 0)
		said := false
		r.Eventually("a try", func() bool { // when the call has ended its job there is nothing left to be resumed
			said = said || strings.Contains(program.Command(t, env, "resume", "pay").Stderr, "called once now by 1 replica")
			return said && (len(r.API.All()) > 1+n || len(r.Store().Results("pay", "k")) == 1)
		})
	}
	r.Store().Ended("pay", "k", 1)
	if n := len(r.Store().Results("pay", "k")); n != 1 {
		t.Errorf("%d results", n)
	}
}

// TestUnreachable: while nothing listens at the api's address, jobs wait, and use up no attempts except those that
// opened the breaker.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	const jobs = 12
	address := closedPort(t)
	// One job may use the three attempts that open the breaker.
	more := strings.Replace(breakerYAML, "attempts: 3", "attempts: 4", 1)
	r := weirtest.RigOn(t, nil, fmt.Sprintf(more, "http://"+address, weirtest.Patience))
	events, err := r.NC.SubscribeSync("weir.events.held.pay.>")
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		r.Producer().Pay(fmt.Sprintf("key-%d", i), fmt.Sprintf("job-%d", i))
	}
	for range 6 {
		checkEvent(t, events, "held", "_")
	}
	api, err := fakeapi.Start(fakeapi.Options{Listen: address, Key: fakeapi.KeyFrom{Segment: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r.API = api
	attempts := 0
	for i := range jobs {
		key := fmt.Sprintf("key-%d", i)
		r.Store().Ended("pay", key, 1)
		for _, letter := range r.Store().Letters("pay", key) {
			t.Errorf("a job was given up: %v", letter.Header)
		}
		for _, result := range r.Store().Results("pay", key) {
			attempts += store.Number(t, result.Header, "Weir-Attempts") - 1
		}
	}
	if attempts > 3 {
		t.Errorf("%d attempts were used up by calls that could not be made, and three open the breaker", attempts)
	}
	if n := len(api.All()); n != jobs {
		t.Errorf("%d calls for %d jobs", n, jobs)
	}
}

// TestAdaptiveRate pushes two calls back: the calls after them come slower than configured, and in the end as fast again.
func TestAdaptiveRate(t *testing.T) {
	t.Parallel()
	const jobs = 900
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1},
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if q.Number == 50 || q.Number == 60 {
				return fakeapi.Behaviour{Status: http.StatusTooManyRequests, RetryAfter: "0.01"}
			}
			return fakeapi.Behaviour{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 200/s, capacity: 1000, in_flight: 8}
    retry: {adaptive: {floor: 10%%, recover: 4s}}
`, api.URL()))
	r.WhilePaused(func() { // or the producer is what the calls wait for
		var queue []*nats.Msg
		for i := range jobs {
			queue = append(queue, producer.JobFor("pay", "key", fmt.Sprint("job-", i)))
		}
		producer.FillTaken(t, r.NC, queue)
	})
	r.Store().Ended("pay", "key", jobs)
	arrivals := r.API.All()
	meanGap := func(from, n int) time.Duration {
		return time.Duration(arrivals[from+n].At-arrivals[from].At) / time.Duration(n)
	}
	slowest, fastest := time.Duration(0), time.Hour
	for i := 80; i+40 < len(arrivals); i++ {
		slowest, fastest = max(slowest, meanGap(i, 40)), min(fastest, meanGap(i, 40))
	}
	if first := meanGap(80, 40); first < 8*time.Millisecond-r.Referee().Eps()/40 {
		t.Errorf("%v between calls after two pushbacks at 5 ms configured", first)
	}
	t.Logf("%v between calls at best after a recovery at 5 ms configured, %v at worst", fastest, slowest)
	r.Referee().Used(arrivals[80:], 40, 200, 5.0/7)
	r.Referee().CheckRateOf(arrivals, 200)
}
