package intake

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestCapacityIsExact fills buckets from eight producers at once: what fits is taken and nothing more, whether the
// stream's own limit is the capacity or an override puts it below.
func TestCapacityIsExact(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit:
    url: %s
    bucket: {rate: 1/h, capacity: 100}
    keys:
      lower: {capacity: 20}
      one: {capacity: 1}
      "low-*": {capacity: 7}
`)
	for _, c := range []struct {
		key      string
		capacity int
	}{{"plain", 100}, {"lower", 20}, {"one", 1}, {"low-a", 7}, {"low-b", 7}} {
		t.Run(c.key, func(t *testing.T) {
			before := r.Store().Messages("WEIR_DEAD")
			called := len(r.API.All())
			r.Producer().Submit("weir.jobs.credit."+c.key, nil, nil) // is called at once, the next in an hour
			r.AwaitCalls(called + 1)
			r.Eventually("an empty bucket", func() bool { return r.Store().Depth("credit", c.key) == 0 })
			codes := r.Producer().Flood("credit", c.key, 8, 50)
			if codes[200] != c.capacity || codes[429] != 400-c.capacity {
				t.Errorf("answers %v, the bucket holds %d", codes, c.capacity)
			}
			if depth := r.Store().Depth("credit", c.key); depth != c.capacity {
				t.Errorf("%d jobs are stored, the bucket holds %d", depth, c.capacity)
			}
			if letters := r.Store().Messages("WEIR_DEAD") - before; letters != codes[429] {
				t.Errorf("%d letters for %d refusals", letters, codes[429])
			}
		})
	}
}

// TestOverflow is every way to be refused with 429, with its letter and its event.
func TestOverflow(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  full: {url: "%[1]s", bucket: {rate: 1/h, capacity: 1}}
  slow: {url: "%[1]s", bucket: {rate: 1/h, capacity: 100, max_wait: 90m}}
  late: {url: "%[1]s", bucket: {rate: 1/h, capacity: 100}}
  busy: {url: "%[1]s", bucket: {rate: 1/h, capacity: 100}, admit: [{rate: 2/h, algorithm: sliding_window}]}
`)
	events, err := r.NC.SubscribeSync("weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		api      string
		header   map[string]string
		waiting  int // jobs that fit
		depth    int
		says     string
		retryMin time.Duration
		retryMax time.Duration
	}{
		{"full", nil, 1, 1, "bucket full: full/k holds 1 of 1", 50 * time.Minute, time.Hour},
		{"slow", nil, 1, 1, "would wait too long: slow/k could call it in", 20 * time.Minute, 31 * time.Minute},
		{"late", map[string]string{"Weir-Deadline": "90m"}, 1, 1, "too late: late/k could call it at", 20 * time.Minute, 31 * time.Minute},
		{"busy", nil, 1, 1, "too many jobs come in: busy/k is over its admission limit", 0, 2 * time.Hour},
	} {
		t.Run(c.api, func(t *testing.T) {
			subject, called := "weir.jobs."+c.api+".k", len(r.API.All())
			r.Producer().Submit(subject, nil, c.header)
			r.AwaitCalls(called + 1)
			r.Eventually("an empty bucket", func() bool { return r.Store().Depth(c.api, "k") == 0 && r.Swept() })
			for i := range c.waiting {
				if a := r.Producer().Submit(subject, nil, map[string]string{"Nats-Msg-Id": fmt.Sprint(i)}); a.Error != nil {
					t.Fatalf("job %d: %+v", i, a.Error)
				}
			}
			header := map[string]string{"Nats-Msg-Id": "over", "X-Own": "kept"}
			for name, value := range c.header {
				header[name] = value
			}
			reply := r.Producer().Submit(subject, []byte("over"), header)
			checkOverflow(t, r, c.api, c.says, reply)
			event, err := events.NextMsg(weirtest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			checkThrottledEvent(t, event, reply, c.depth, c.retryMin, c.retryMax)
			if c.api == "busy" {
				return // an id sent again comes in again
			}
			if a := r.Producer().Submit(subject, nil, map[string]string{"Nats-Msg-Id": "0"}); !a.Duplicate {
				t.Errorf("a job that waits, sent again to a bucket that takes no more: %+v", a)
			}
		})
	}
}

func checkOverflow(t *testing.T, r *weirtest.Rig, api, says string, a producer.Answer) {
	t.Helper()
	if a.Error == nil || a.Error.ErrCode != 20429 || a.Letter == 0 || len(a.Error.Description) < len(says) || a.Error.Description[:len(says)] != says {
		t.Fatalf("answered %+v, want 429: %s", a, says)
	}
	letters := r.Store().Letters(api, "k")
	if len(letters) != 1 || letters[0].Sequence != a.Letter || string(letters[0].Data) != "over" {
		t.Fatalf("%d letters: %+v", len(letters), letters)
	}
	for name, want := range map[string]string{
		"Weir-Dead-Reason": "overflow", "Weir-Dead-Detail": a.Error.Description, "Weir-Job-Id": "over", "X-Own": "kept", "Weir-Dead-Billed": "no",
	} {
		if got := letters[0].Header.Get(name); got != want {
			t.Errorf("its letter says %s: %q, want %q", name, got, want)
		}
	}
}

func checkThrottledEvent(t *testing.T, msg *nats.Msg, a producer.Answer, depth int, least, most time.Duration) {
	t.Helper()
	var e struct {
		Type, Source, Subject string
		Data                  struct {
			Job, Reason     string
			Depth, Capacity int
			Retry           int64  `json:"retry_after_ms"`
			Letter          uint64 `json:"dead_letter_seq"`
		}
	}
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		t.Fatal(err)
	}
	if e.Type != "weir.throttled.v1" || e.Subject != "k" || e.Data.Job != "over" || e.Data.Reason != "overflow" || e.Data.Letter != a.Letter ||
		e.Data.Depth != depth || e.Data.Capacity == 0 {
		t.Errorf("the event tells %s", msg.Data)
	}
	if retry := time.Duration(e.Data.Retry) * time.Millisecond; retry < least || retry > most {
		t.Errorf("try again in %s, want %s to %s", retry, least, most)
	}
}

// TestBookAfterOverflow: positions stay right after many jobs were refused, sent twice and finished.
func TestBookAfterOverflow(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit: {url: %s, bucket: {rate: 2000/s, burst: 100, capacity: 20}, keys: {lower: {capacity: 10}}}
`)
	for _, key := range []string{"k", "lower"} {
		for range 3 {
			r.Producer().Flood("credit", key, 4, 50)
		}
		r.Eventually("an empty bucket", func() bool { return r.Store().Depth("credit", key) == 0 })
		r.Eventually("a first position", func() bool {
			return r.Producer().Submit("weir.jobs.credit."+key, nil, nil).Position == 1
		})
	}
}

// TestCapacityBesideOtherIntakes: a key with a smaller capacity than its stream's is never fuller, whichever of three
// replicas takes its jobs.
func TestCapacityBesideOtherIntakes(t *testing.T) {
	t.Parallel()
	url := servers.OneServer(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  credit:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/h, capacity: 100}\n    keys: {\"low-*\": {capacity: 20}}\n")
	r := &weirtest.Rig{T: t}
	for i, roles := range [][]environment.Role{{environment.RoleDispatch, environment.RoleIngest}, {environment.RoleIngest}, {environment.RoleDispatch, environment.RoleIngest}} {
		s := program.ExternalSettings(t, url, file, fmt.Sprintf("replica-%d", i), roles...)
		s.Partitions, s.ShutdownTimeout = 4, 2*time.Second
		w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
		if err != nil {
			t.Fatal(err)
		}
		r.Worker = w
		defer func() {
			w.Stop()
			if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
				t.Error(err)
			}
		}()
	}
	var err error
	if r.NC, err = nats.Connect(url, nats.Timeout(await.Patience)); err != nil {
		t.Fatal(err)
	}
	defer r.NC.Close()
	if r.JS, err = jetstream.New(r.NC); err != nil {
		t.Fatal(err)
	}
	for k := range 20 {
		key := fmt.Sprintf("low-%d", k)
		codes := r.Producer().Flood("credit", key, 3, 30)
		if codes[200] != 20 || codes[429] != 70 {
			t.Errorf("key %s: answers %v, the bucket holds 20", key, codes)
		}
		if depth := r.Store().Depth("credit", key); depth != 20 {
			t.Errorf("key %s: %d jobs are stored, the bucket holds 20", key, depth)
		}
	}
}
