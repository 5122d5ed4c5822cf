package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
)

// TestHold lets one call be pushed back for a second: what it holds is not called before, and what it does not hold is.
// What is held stays held over a restart.
func TestHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		holds, subject string
		restart        bool
	}{
		{"key", "pushed", false}, {"api", "_", false}, {"key", "pushed", true}, {"api", "_", true},
	} {
		t.Run(fmt.Sprintf("%s restart %v", c.holds, c.restart), func(t *testing.T) {
			t.Parallel()
			api := weirtest.StartOrdered(t, map[string][]string{"pushed": {"status=429;retry-after=2"}})
			r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    retry: {attempts: 3, min: 5ms, max: 20ms, hold: %s}
`, api.URL(), c.holds))
			events, err := r.NC.SubscribeSync("weir.events.*.pay.>")
			if err != nil {
				t.Fatal(err)
			}
			r.Producer().Pay("pushed", "first")
			checkEvent(t, events, "held", c.subject)
			r.Producer().Pay("pushed", "second")
			if c.restart {
				r.Stop()
				r.Start()
			}
			r.Producer().Pay("pushed", "third")
			sent := int64(time.Since(api.Started()))
			r.Producer().Pay("other", "other")
			if c.holds == "key" {
				r.Store().Ended("pay", "other", 1)
			}
			r.Store().Ended("pay", "pushed", 3)
			r.Store().Ended("pay", "other", 1)
			if !c.restart {
				checkEvent(t, events, "resumed", c.subject)
			}
			arrivals := r.API.All()
			until := arrivals[0].End + int64(2*time.Second)
			if arrivals[0].Status != 429 || len(arrivals) != 5 {
				t.Fatalf("%d calls, the first answered %d", len(arrivals), arrivals[0].Status)
			}
			for _, a := range arrivals[1:] {
				if a.At < until && (a.Key == "pushed" || c.holds == "api") {
					t.Errorf("%s %q was called %v before the hold was over", a.Key, a.Body, time.Duration(until-a.At))
				} else if a.Key == "other" && c.holds == "key" && r.Referee().WaitedFor(sent, a.At, until) {
					t.Errorf("the hold of one key held another")
				}
			}
		})
	}
}

// TestHoldOfACancelledJob cancels a job that was pushed back. The hold lasts over a restart, though no job is left whose
// retry mark records it.
func TestHoldOfACancelledJob(t *testing.T) {
	t.Parallel()
	for holds, waits := range map[string]schedule.WaitFor{"key": schedule.WaitHeld, "api": schedule.WaitAPIHeld} {
		t.Run(holds, func(t *testing.T) {
			t.Parallel()
			const far = "status=429;retry-after=600"
			api := weirtest.StartOrdered(t, map[string][]string{"k": {far, far}})
			r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 1000/s, capacity: 50, in_flight: 1}
    retry: {attempts: 3, min: 5ms, max: 20ms, hold: %s}
`, api.URL(), holds))
			isHeld := func() bool {
				d, err := r.Worker.Parts().Dispatcher.Desk.Show(t.Context(), "pay", "k", 1)
				return err == nil && d.Waits.For == waits && len(d.Next) == 1
			}
			r.Producer().Pay("k", "first")
			r.Eventually("a hold", isHeld)
			answers, err := r.Worker.Parts().Dispatcher.Desk.Cancel(t.Context(), desk.Cancellation{API: "pay", Job: "first"})
			if err != nil || len(answers) != 1 || answers[0].Verdict != schedule.CancelTaken {
				t.Fatalf("not cancelled: %v %v", answers, err)
			}
			r.Stop()
			r.Start()
			r.Producer().Pay("k", "second")
			r.Eventually("the hold or a call", func() bool { return isHeld() || len(r.API.All()) > 1 })
			if n := len(r.API.All()); n != 1 {
				t.Errorf("%d calls, one of them during the hold", n)
			}
		})
	}
}

func checkEvent(t *testing.T, events *nats.Subscription, kind, key string) {
	t.Helper()
	msg, err := events.NextMsg(weirtest.Patience)
	if err != nil {
		t.Fatalf("no event %s: %v", kind, err)
	}
	if want := "weir.events." + kind + ".pay." + key; msg.Subject != want || !strings.Contains(string(msg.Data), `"type":"weir.`+kind+`.v1"`) {
		t.Errorf("event %s %s, want %s", msg.Subject, msg.Data, want)
	}
}

// TestStopLeavesNothingUnknown stops a worker in the middle of its work, again and again. A job that was not called is
// called later, once, even on an api that is not idempotent.
func TestStopLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	const jobs = 48
	orders := map[string][]string{}
	for k := range 4 {
		orders[fmt.Sprintf("key-%d", k)] = repeat("delay=60ms", jobs)
	}
	api := weirtest.StartOrdered(t, orders)
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 100, in_flight: 2}}
`, api.URL()))
	for i := range jobs {
		r.Producer().Pay(fmt.Sprintf("key-%d", i%4), fmt.Sprintf("job-%d", i))
	}
	for range 4 {
		called := len(r.API.All())
		r.Eventually("another call", func() bool { return len(r.API.All()) > called || called == jobs })
		r.Stop()
		r.Start()
	}
	for k := range 4 {
		key := fmt.Sprintf("key-%d", k)
		r.Store().Ended("pay", key, jobs/4)
		for _, letter := range r.Store().Letters("pay", key) {
			t.Errorf("a letter of a job that was called or could have been: %v", letter.Header)
		}
	}
	if n := len(r.API.All()); n != jobs {
		t.Errorf("%d calls for %d jobs", n, jobs)
	}
	for _, key := range fakeapi.KeysOf(r.API.All()) {
		r.Referee().CheckRateOf(fakeapi.OfKey(r.API.All(), key), 100)
	}
}
