package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/serve/embedded"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// door is the intake alone, with queues that no dispatcher empties: nats-server, letters, one api's queue, service.
type door struct {
	t     *testing.T
	nc    *nats.Conn
	js    jetstream.JetStream
	queue *queue.Queue
}

type doorOptions struct {
	store    int64 // bytes of everything
	letters  int64 // bytes of dead letters
	capacity int64
	lower    int64 // capacity of the key "lower"
}

func openDoor(t *testing.T, o doorOptions) *door {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		Listen: "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 1 << 20, MaxStore: o.store, Log: weirtest.TestLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	d := &door{t: t}
	if d.nc, err = nats.Connect(server.ClientURL(), nats.Timeout(await.Patience), nats.ReconnectBufSize(-1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.nc.Close)
	if d.js, err = jetstream.New(d.nc); err != nil {
		t.Fatal(err)
	}
	office, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: d.nc, JetStream: d.js, Replicas: 1, MaxAge: time.Hour, MaxBytes: o.letters, MaxStore: o.store / 4, Log: weirtest.TestLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: o.capacity}}
	if o.lower > 0 {
		rules.Overrides = []bucket.Override{{Pattern: "lower", Capacity: &o.lower}}
	}
	d.queue, err = queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.nc, JetStream: d.js, Rules: rules, Settings: queue.Settings{
			StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "credit", Partitions: 1, Capacity: o.capacity, MaxBody: 1 << 19,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	go func() { ended <- office.Run(ctx) }()
	go func() { ended <- d.queue.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := await.Receive(t, "the end of the letters and of the queue", ended); err != nil {
				t.Error(err)
			}
		}
	})
	apis := map[string]*ingest.API{"credit": {Rule: &ingest.Rule{API: "credit", Methods: []string{"POST"}, MaxBody: 1 << 19}, Queue: d.queue}}
	service, err := ingest.Start(ingest.Options{
		Conn: d.nc, Version: "0.0.0", APIs: func() map[string]*ingest.API { return apis }, Bury: office.BuryRefused, Log: weirtest.TestLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *door) submit(key, id string, body []byte) producer.Answer {
	d.t.Helper()
	reply, err := d.nc.RequestMsg(&nats.Msg{Subject: "weir.jobs.credit." + key, Header: nats.Header{"Nats-Msg-Id": {id}}, Data: body}, weirtest.Patience)
	if err != nil {
		d.t.Fatal(err)
	}
	var a producer.Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil {
		d.t.Fatalf("%s: %v", reply.Data, err)
	}
	return a
}

// holds is what a stream holds.
func (d *door) holds(stream string) jetstream.StreamState {
	d.t.Helper()
	s, err := d.js.Stream(d.t.Context(), stream)
	if err != nil {
		d.t.Fatal(err)
	}
	return s.CachedInfo().State
}

// TestFullStore: when the store is full, producers get 503, nothing is kept of their jobs, and every receipt stands for
// a stored message. When there is room again, jobs are accepted again.
func TestFullStore(t *testing.T) {
	t.Parallel()
	const stream = "WEIR_credit_0"
	d := openDoor(t, doorOptions{store: 8 << 20, letters: 1 << 20, capacity: 1000})
	body := make([]byte, 256<<10)
	taken := 0
	for i := 0; ; i++ {
		a := d.submit(fmt.Sprint("k", i%3), fmt.Sprint("job-", i), body)
		if a.Error == nil {
			taken++
			if a.Seq == 0 || taken > 64 {
				t.Fatalf("job %d: %+v", i, a)
			}
			continue
		}
		if a.Error.Code != 503 || a.Error.ErrCode != 20503 || a.Letter != 0 || a.Seq != 0 {
			t.Fatalf("a full store answers %+v", a)
		}
		if a := d.submit(fmt.Sprint("k", i%3), fmt.Sprint("job-", i), body); a.Error == nil || a.Error.Code != 503 {
			t.Errorf("the same again: %+v", a)
		}
		break
	}
	if taken == 0 {
		t.Fatal("not one job was taken")
	}
	if state := d.holds(stream); int(state.Msgs) != taken {
		t.Errorf("%d receipts, %d messages", taken, state.Msgs)
	}
	if letters := d.holds("WEIR_DEAD").Msgs; letters != 0 {
		t.Errorf("%d letters of jobs whose producers were told to try again", letters)
	}
	if a := d.submit("k0", "job-0", body); !a.Duplicate && (a.Error == nil || a.Error.Code != 503) {
		t.Errorf("a stored job sent again: %+v", a)
	}
	if err := d.js.DeleteStream(t.Context(), "WEIR_EVENTS"); err != nil { // an operator makes room
		t.Fatal(err)
	}
	s, err := d.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(2)); err != nil {
		t.Fatal(err)
	}
	if a := d.submit("k0", "afterwards", body); a.Error != nil {
		t.Errorf("with room again: %+v", a.Error)
	}
}

// TestFullDeadLetters: if the letter of a job that overflows cannot be stored, its producer is told to try again. Jobs
// that fit are accepted as usual, and no letter is dropped to make room for another.
func TestFullDeadLetters(t *testing.T) {
	t.Parallel()
	d := openDoor(t, doorOptions{store: 256 << 20, letters: 64 << 10, capacity: 2})
	body := make([]byte, 16<<10)
	for i := range 2 {
		if a := d.submit("k", fmt.Sprint("fits-", i), body); a.Error != nil {
			t.Fatalf("%+v", a.Error)
		}
	}
	events, err := d.nc.SubscribeSync("weir.events.>")
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for i := range 10 {
		a := d.submit("k", fmt.Sprint("over-", i), body)
		switch {
		case a.Error != nil && a.Error.Code == 429 && a.Letter > 0:
			kept++
		case a.Error == nil || a.Error.ErrCode != 20503 || a.Letter != 0 || !strings.Contains(a.Error.Description, "bucket full"):
			t.Errorf("overflow %d: %+v", i, a)
		}
	}
	if kept == 0 || kept == 10 {
		t.Fatalf("%d letters fit", kept)
	}
	if state := d.holds("WEIR_DEAD"); int(state.Msgs) != kept || state.FirstSeq != 1 {
		t.Errorf("%d answers of 429, and the letters are %+v", kept, state)
	}
	for range kept {
		if _, err := events.NextMsg(weirtest.Patience); err != nil {
			t.Fatal(err)
		}
	}
	if a := d.submit("other", "fits-too", body); a.Error != nil {
		t.Errorf("what does not overflow: %+v", a.Error)
	}
	if n, _, err := events.Pending(); err != nil || n != 0 {
		t.Errorf("%d events too many (%v)", n, err)
	}
}

// TestEventCannotBeStored checks that a refused job whose event cannot be stored is answered 503, and that the next try
// of the job gets the letter that stands, with its event.
func TestEventCannotBeStored(t *testing.T) {
	t.Parallel()
	d := openDoor(t, doorOptions{store: 256 << 20, letters: 1 << 20, capacity: 1})
	if a := d.submit("k", "fits", nil); a.Error != nil {
		t.Fatalf("%+v", a.Error)
	}
	events, err := d.js.Stream(t.Context(), "WEIR_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.js.DeleteStream(t.Context(), "WEIR_EVENTS"); err != nil {
		t.Fatal(err)
	}
	if a := d.submit("k", "over", nil); a.Error == nil || a.Error.ErrCode != 20503 {
		t.Errorf("answered %+v", a)
	}
	if events, err = d.js.CreateStream(t.Context(), events.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	if a := d.submit("k", "over", nil); a.Error == nil || a.Error.ErrCode != 20429 || a.Letter != 1 {
		t.Errorf("the next try is answered %+v", a)
	}
	if info, err := events.Info(t.Context()); err != nil || info.State.Msgs != 1 || d.holds("WEIR_DEAD").Msgs != 1 {
		t.Errorf("%+v, %v, and the letters are %+v", info, err, d.holds("WEIR_DEAD"))
	}
}

// TestIntakeAlone: a replica that stores jobs and reads no queue still keeps capacities exactly, and its forecasts do
// not grow with what others have finished.
func TestIntakeAlone(t *testing.T) {
	t.Parallel()
	d := openDoor(t, doorOptions{store: 256 << 20, letters: 64 << 20, capacity: 100, lower: 20})
	second, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.nc, JetStream: d.js, Settings: queue.Settings{
			StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "credit", Partitions: 1, Capacity: 100, MaxBody: 1 << 19,
		}, Rules: bucket.Rules{
			Key:       bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: 100},
			Overrides: []bucket.Override{{Pattern: "lower", Capacity: new(int64(20))}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	defer func() {
		stop()
		if err := await.Receive(t, "the end of the second queue", ended); err != nil {
			t.Error(err)
		}
	}()
	answers := make(chan *ingest.Refusal, 400)
	for i := range 200 {
		for _, q := range []*queue.Queue{d.queue, second} {
			j, refusal := ingest.Parse(ingest.Message{Key: "lower", Body: fmt.Appendf(nil, "%d", i)}, &ingest.Rule{API: "credit", Methods: []string{"POST"}, MaxBody: 100}, time.Now())
			if refusal != nil {
				t.Fatal(refusal)
			}
			q.Put(j, func(_ ingest.Receipt, refusal *ingest.Refusal) { answers <- refusal })
		}
	}
	taken, unlucky := 0, 0
	for range 400 {
		switch refusal := await.Receive(t, "the answer to a job", answers); {
		case refusal == nil:
			taken++
		case refusal.Code == ingest.Unavailable:
			unlucky++ // sixteen times in a row another came first
		case refusal.Code != ingest.Throttled:
			t.Errorf("%+v", refusal)
		}
	}
	if taken != 20 {
		t.Errorf("two replicas took %d jobs (%d unlucky), the bucket holds 20", taken, unlucky)
	}
	for i := range 5 { // only the operator allowed this: the bucket is empty again
		s, err := d.js.Stream(t.Context(), "WEIR_credit_0")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := d.submit("k", fmt.Sprint("job-", i), nil); a.Error != nil || a.Position != 1 {
			t.Errorf("job %d of an empty bucket: %+v", i, a)
		}
	}
}
