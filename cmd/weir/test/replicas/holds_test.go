package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// holdsAPI has a bucket that never waits, so that only holds keep its jobs.
const holdsAPI = `
apis:
  pay:
    url: %s/v1
    timeout: 2m
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 100}
    retry: {attempts: 50, min: 300ms, max: 300ms, hold: api}
    breaker: {failures: 1, min: 300ms, max: 300ms}
`

// council is several replicas whose api answers as the test says.
type council struct {
	*weirtest.KillRig
	yaml    string // the configuration of replicas in this process
	workers []*worker.Worker
	control jetstream.KeyValue
	entries jetstream.KeyWatcher // of the hold that they share
	answer  atomic.Pointer[func(context.Context, *fakeapi.Request) fakeapi.Behaviour]
}

// answers sets how the api answers from now on.
func (c *council) answers(how func(context.Context, *fakeapi.Request) fakeapi.Behaviour) {
	c.answer.Store(&how)
}

func fine(context.Context, *fakeapi.Request) fakeapi.Behaviour { return fakeapi.Behaviour{} }

func answering(code int) func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
	return func(context.Context, *fakeapi.Request) fakeapi.Behaviour { return fakeapi.Behaviour{Status: code} }
}

// newCouncil returns a council without replicas.
func newCouncil(t *testing.T, url string) *council {
	t.Helper()
	c := &council{yaml: holdsAPI}
	c.answers(fine)
	api, err := fakeapi.Start(fakeapi.Options{
		Key:    fakeapi.KeyFrom{Segment: -1},
		Script: func(ctx context.Context, r *fakeapi.Request) fakeapi.Behaviour { return (*c.answer.Load())(ctx, r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // calls that a kill cuts count as errors
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c.KillRig = &weirtest.KillRig{T: t, API: api, NC: nc, Acks: map[string]bool{}}
	return c
}

// startWorkers starts replicas in this process.
func (c *council) startWorkers(url string, n int) {
	c.T.Helper()
	file := filepath.Join(c.T.TempDir(), "weir.yaml")
	weirtest.WriteFile(c.T, file, fmt.Sprintf(c.yaml, c.API.URL()))
	for i := range n {
		s := program.ExternalSettings(c.T, url, file, fmt.Sprint("replica-", i))
		s.Partitions = 12
		w, err := worker.Start(await.Context(c.T, "a replica to start"), s, weirtest.TestLog(c.T))
		if err != nil {
			c.T.Fatal(err)
		}
		c.T.Cleanup(w.Stop)
		c.workers = append(c.workers, w)
	}
	c.watch()
	await.Until(c.T, "a part of the partitions for each replica", func() bool {
		for _, w := range c.workers {
			if s, err := w.Parts().Dispatcher.Desk.State("pay"); err != nil || s.Owned != 12/n {
				return false
			}
		}
		return true
	})
}

func (c *council) watch() {
	c.T.Helper()
	js, err := jetstream.New(c.NC)
	if err != nil {
		c.T.Fatal(err)
	}
	if c.control, err = js.KeyValue(c.T.Context(), "weir_control"); err != nil {
		c.T.Fatal(err)
	}
	if c.entries, err = c.control.Watch(c.T.Context(), hold); err != nil {
		c.T.Fatal(err)
	}
}

// hold is the key of the entry that the replicas share.
const hold = "hold.pay"

// entry returns the entry as it is now.
func (c *council) entry(ctx context.Context) (e entry, err error) {
	stored, err := c.control.Get(ctx, hold)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(stored.Value(), &e)
}

// entry is what the test reads of the entry that replicas share.
type entry struct {
	Replica, Session, Probing string
	Open                      bool
	Turn                      int64
	HeldMS                    int64 `json:"held_ms"`
}

// awaitEntry waits until the entry is as the test wants.
func (c *council) awaitEntry(what string, ok func(entry) bool) entry {
	c.T.Helper()
	for {
		e := await.Receive(c.T, what, c.entries.Updates())
		if e == nil || e.Operation() != jetstream.KeyValuePut {
			continue
		}
		var got entry
		if err := json.Unmarshal(e.Value(), &got); err != nil {
			c.T.Fatalf("%s: %v", e.Value(), err)
		}
		if ok(got) {
			return got
		}
	}
}

// submit submits a job for each of many keys, so that each replica has some.
func (c *council) submit(round string) {
	for i := range keys {
		c.Publish(c.T.Context(), fmt.Sprintf("weir.jobs.pay.key-%d", i), fmt.Sprintf("%s-%d", round, i), []byte(round))
	}
}

// keys is how many keys have jobs: enough that no replica is without one.
const keys = 36

// of returns the calls that the api has answered with a status.
func (c *council) of(status int) []fakeapi.Arrival {
	return slices.DeleteFunc(c.API.All(), func(a fakeapi.Arrival) bool { return a.Status != status })
}

func (c *council) answered(status int) int { return len(c.of(status)) }

// awaitHeld waits until every replica holds the api, and returns how many calls have reached the api by then.
func (c *council) awaitHeld() int {
	c.T.Helper()
	await.Until(c.T, "a hold of every replica", func() bool {
		for _, w := range c.workers {
			if d, err := w.Parts().Dispatcher.Desk.Detail("pay", 1); err != nil || len(d.Holds) == 0 || d.Holds[0].Key != "" {
				return false
			}
		}
		return true
	})
	return len(c.API.All())
}

// TestReplicasShareAHold lets an api answer one call with 429. All replicas hold the api for its Retry-After, although
// each has jobs, and go on when it is over.
func TestReplicasShareAHold(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	c := newCouncil(t, url)
	c.startWorkers(url, 3)
	c.submit("before")
	await.Until(t, "the calls of all replicas", func() bool { return c.answered(200) == keys })
	by := c.instances()
	if len(by) != 3 {
		t.Fatalf("calls by replica: %v", by)
	}
	var pushed atomic.Bool
	c.answers(func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
		if pushed.CompareAndSwap(false, true) {
			return fakeapi.Behaviour{Status: 429, RetryAfter: "6"}
		}
		return fakeapi.Behaviour{}
	})
	c.Publish(t.Context(), "weir.jobs.pay.key-0", "pushed-back", nil)
	e := c.awaitEntry("the hold", func(e entry) bool { return e.HeldMS > 0 })
	before := c.awaitHeld()
	c.submit("during")
	c.awaitEnd(t, 6*time.Second)
	pushedAt := c.of(429)[0].At
	during := 0
	for _, a := range c.API.All()[before:] {
		if time.Duration(a.At-pushedAt) < 5900*time.Millisecond {
			during++
		}
	}
	if during > 0 {
		t.Errorf("%d calls while every replica was held, by what %s had learned", during, e.Replica)
	}
	await.Until(t, "the jobs of all replicas", func() bool { return c.answered(200) == 2*keys+1 })
	if n := c.answered(429); n != 1 {
		t.Errorf("the api had to push back %d times", n)
	}
	if held, resumed := c.events("held"), c.events("resumed"); held != 1 || resumed != 1 {
		t.Errorf("%d events of the hold, %d of its end", held, resumed)
	}
}

// TestReplicasLearnSoon measures how long calls go on after an answer that holds all replicas: a 429, a denial, and a
// failure that opens the breaker. Three replicas call all the time, and the api's own stamps tell. What a replica has
// learned holds the others within 250 ms, and what the machine held them up.
func TestReplicasLearnSoon(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	c := newCouncil(t, url)
	c.yaml = strings.Replace(holdsAPI, "failures: 1, min: 300ms, max: 300ms", "failures: 1, min: 5s, max: 5s", 1)
	slow := fakeapi.Behaviour{Delay: 200 * time.Millisecond} // so each key calls five times a second
	taken := make(chan struct{})
	c.answers(func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-taken: // before that, each key's first call waits, so that no jobs are used up
		case <-ctx.Done():
		}
		return slow
	})
	c.startWorkers(url, 3)
	var jobs []*nats.Msg
	for n := range 90 * keys {
		jobs = append(jobs, producer.JobFor("pay", fmt.Sprint("key-", n%keys), fmt.Sprint(n)))
	}
	producer.FillTaken(t, c.NC, jobs)
	close(taken)
	for _, status := range []int{429, 401, 500} {
		c.awaitBusy()
		heldUp := referee.MeasureHeldUp(t)
		var answered atomic.Bool
		c.answers(func(context.Context, *fakeapi.Request) fakeapi.Behaviour {
			if answered.CompareAndSwap(false, true) {
				return fakeapi.Behaviour{Status: status, RetryAfter: "4"}
			}
			return slow
		})
		var told int64
		await.Until(t, "the answer", func() bool {
			if of := c.of(status); len(of) > 0 {
				told = of[0].End
			}
			return told > 0
		})
		c.awaitHeld()
		worst := heldUp.Worst()
		const hold = 3 * time.Second // each lasts longer
		await.Until(t, "calls after the hold", func() bool {
			return slices.ContainsFunc(c.API.All(), func(a fakeapi.Arrival) bool { return time.Duration(a.At-told) > hold })
		})
		last, calls := time.Duration(0), 0
		for _, a := range c.API.All() {
			if after := time.Duration(a.At - told); after > 0 && after < hold {
				last, calls = max(last, after), calls+1
			}
		}
		t.Logf("%d: %d calls began after the answer, the last %s after it; the machine held programs up for %s",
			status, calls, last.Round(time.Millisecond), worst.Round(time.Millisecond))
		// Five programs wait one after the other: the caller, its writer, the server, the other replica, the api.
		if most := 250*time.Millisecond + 5*worst; last > most {
			t.Errorf("%d: a call began %s after the answer, later than %s", status, last, most)
		}
	}
}

// awaitBusy waits until each key has been called again and again. Each replica owns some of the keys.
func (c *council) awaitBusy() {
	c.T.Helper()
	begun := len(c.API.All())
	await.Until(c.T, "calls of all keys", func() bool {
		calls := map[string]int{}
		for _, a := range c.API.All()[begun:] {
			calls[a.Key]++
		}
		return len(calls) == keys && slices.Min(slices.Collect(maps.Values(calls))) > 1
	})
}

// events returns how many events of a type are stored.
func (c *council) events(of string) int {
	c.T.Helper()
	js, err := jetstream.New(c.NC)
	if err != nil {
		c.T.Fatal(err)
	}
	s, err := js.Stream(c.T.Context(), "WEIR_EVENTS")
	if err != nil {
		c.T.Fatal(err)
	}
	info, err := s.Info(c.T.Context(), jetstream.WithSubjectFilter("weir.events."+of+".>"))
	if err != nil {
		c.T.Fatal(err)
	}
	n := uint64(0)
	for _, of := range info.State.Subjects {
		n += of
	}
	return int(n) //nolint:gosec // a few
}

// awaitEnd waits until the api is called again.
func (c *council) awaitEnd(t *testing.T, hold time.Duration) {
	t.Helper()
	n := len(c.API.All())
	ctx, cancel := context.WithTimeout(t.Context(), hold+weirtest.Patience)
	defer cancel()
	if err := c.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended > int64(n) }); err != nil {
		t.Fatalf("the api is not called after the hold: %v", err)
	}
}

// instances counts the calls of each replica.
func (c *council) instances() map[string]int {
	c.T.Helper()
	by := map[string]int{}
	await.Until(c.T, "the records of all calls", func() bool {
		clear(by)
		js, err := jetstream.New(c.NC)
		if err != nil {
			c.T.Fatal(err)
		}
		n := 0
		for _, r := range store.RecordsOf(c.T, js) {
			by[r.Instance]++
			n++
		}
		return n >= keys
	})
	return by
}

// TestReplicasShareTheBreaker lets an api fail, or deny weir. The breaker opens for all replicas, and one call probes
// the api for all of them, however long it takes. When it is answered, all go on.
func TestReplicasShareTheBreaker(t *testing.T) {
	t.Parallel()
	for what, code := range map[string]int{"failures": 500, "denial": 401} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := servers.OneServer(t)
			c := newCouncil(t, url)
			c.startWorkers(url, 3)
			c.answers(answering(code))
			c.submit("job")
			c.awaitEntry("an open breaker", func(e entry) bool { return e.Open })
			c.awaitHeld()
			probes := make(chan struct{}, 100)
			release := make(chan struct{})
			c.answers(func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
				probes <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return fakeapi.Behaviour{}
			})
			await.Receive(t, "a probe", probes)
			var first entry
			for n := 0; n < 3; n++ { // the last renewal comes many times later than the breaker is open
				e := c.awaitEntry("a claim and its renewals", func(e entry) bool { return e.Probing != "" })
				if e.Probing != first.Probing || e.Turn != first.Turn {
					first, n = e, 0
				}
			}
			if n := len(probes); n > 0 {
				t.Errorf("%d more calls while one probed the api for all", n)
			}
			c.answers(fine)
			close(release)
			c.awaitEntry("a closed breaker", func(e entry) bool { return !e.Open })
			await.Until(t, "the jobs of all replicas", func() bool { return c.answered(200) == keys })
		})
	}
}

// TestProberKilled kills the replica whose probe is under way. When the others have seen no renewal of its claim for a
// while, one of them probes the api.
func TestProberKilled(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	var watching atomic.Pointer[council]
	probes, release := make(chan string, 100), make(chan struct{}) // the sessions of the processes that probe
	r := weirtest.NewReplicasOf(t, url, 2, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1},
		Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
			select {
			case <-release:
				return fakeapi.Behaviour{}
			default:
			}
			// A claim is stored before its probe is sent. Until then every call fails.
			e, err := watching.Load().entry(ctx)
			if err != nil || e.Probing == "" {
				return fakeapi.Behaviour{Status: 500}
			}
			probes <- e.Probing
			select {
			case <-release:
			case <-ctx.Done():
			}
			return fakeapi.Behaviour{}
		},
	}, strings.Replace(strings.TrimPrefix(holdsAPI, "\n"), "failures: 1, min: 300ms, max: 300ms", "failures: 1, min: 2s, max: 2s", 1))
	c := &council{KillRig: r.KillRig}
	c.watch()
	watching.Store(c)
	c.submit("job")
	prober := await.Receive(t, "a probe", probes)
	e := c.awaitEntry("the prober's claim", func(e entry) bool { return e.Probing == prober && e.Session == prober })
	for i, p := range r.Procs {
		if e.Replica == fmt.Sprint("replica-", i) {
			p.Kill()
		}
	}
	prober = await.Receive(t, "another probe", probes)
	next := c.awaitEntry("another claim", func(next entry) bool { return next.Probing == prober && next.Session == prober })
	if next.Replica == e.Replica || len(probes) > 0 {
		t.Errorf("%s claims the probe after %s was killed, and %d more calls are made", next.Replica, e.Replica, len(probes))
	}
	close(release)
	r.AwaitEmpty()
}
