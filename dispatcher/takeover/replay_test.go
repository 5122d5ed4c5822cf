package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/ingest"
	"weir/ingest/await"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// takingOver returns a worker about to read a partition whose earlier owner gave it up or died.
func takingOver(t *testing.T, d *lane.Env, q *queue.Queue, died bool, lease *lease.Membership) (*rig, *Takeover) {
	t.Helper()
	api := &httpcall.API{
		Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Timeout: time.Minute, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"},
		Rule:  &ingest.Rule{MaxBody: 1 << 10, Methods: []string{"POST"}},
		Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4}},
	}
	w := newRig(d, q, api)
	p := w.takeover(ownership.Tenure{Lease: lease})
	w.Partitions = []*lane.Owned{p.Owned}
	owners := 1
	if died {
		owners = 2
	}
	for range owners {
		var err error
		if p.Markers, err = p.Bucket.Own(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	if !died {
		t.Cleanup(func() { _ = p.Markers.GiveUp(t.Context()) })
	}
	return w, p
}

// storeMarkers stores the takeover's markers until stop.
func storeMarkers(t *testing.T, p *Takeover) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running errgroup.Group
	running.Go(func() error { return p.Markers.Run(ctx) })
	return func() { cancel(); _ = await.Result(t, "the end of the markers", running.Wait) }
}

// noMore returns a context that has ended, so that jobs that are read with it go no further.
func noMore(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// stored returns when the job at a sequence was stored.
func stored(seq uint64) time.Time { return time.UnixMicro(1_700_000_000_000_000 + int64(seq)).UTC() }

func jobEntry(key string, seq uint64) queue.Entry {
	return queue.Entry{Seq: seq, Key: key, Time: stored(seq), Header: map[string][]string{
		ingest.HeaderMsgID: {ingest.StoredID(key, fmt.Sprint(seq))}, ingest.HeaderJobID: {fmt.Sprint(seq)},
	}}
}

func markerEntry(t interface{ Fatal(...any) }, kind queue.EntryKind, seq uint64, value any) queue.Entry {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return queue.Entry{Kind: kind, Seq: seq, Data: data, Time: stored(seq)}
}

// readLedger makes a dispatcher read a ledger with exactly these records. They are of the api "other". Nothing of "pay"
// counts as read, so that the outcome of an intent is looked up.
func readLedger(t interface{ Fatal(...any) }, d *lane.Env, records []ledger.Record) {
	ctx := context.Background()
	calls, err := d.JS.Stream(ctx, ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := calls.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		data, _ := json.Marshal(&records[i])
		if _, err := d.JS.Publish(ctx, records[i].Subject(), data); err != nil {
			t.Fatal(err)
		}
	}
	_, err = d.Tail.Read(ctx, ledger.TailOptions{
		JetStream: d.JS, APIs: []string{"other"}, Now: d.Now, Wants: func(string, string) bool { return true },
		Ended: func(string, []queue.Finished) {}, TATOf: func(*ledger.Record, time.Time, time.Time) bucket.Micros { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCallsStartWhileTheQueueIsRead checks that a key is called as soon as all of its jobs with a history have been
// read, and no sooner. No key is called before the last job that may hold every key was read.
func TestCallsStartWhileTheQueueIsRead(t *testing.T) {
	d := newEnv(t)
	q := payQueue(t, d)
	rapid.Check(t, func(rt *rapid.T) {
		w, p := takingOver(t, d, q, false, nil)
		defer storeMarkers(t, p)()
		w.Terms.API.Retry.HoldAPI = true
		keyed := w.Terms.API.KeyIdentity()
		jobs := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 40).Draw(rt, "jobs")
		until, blind := map[string]uint64{}, uint64(0)
		intents := map[string]int32{}
		var records []ledger.Record
		marker := uint64(1000)
		for i, key := range jobs {
			seq := uint64(i + 1)
			what := rapid.SampledFrom([]string{"", "", "", "", "", "intent", "hold", "mark", "record", "gone", "other"}).Draw(rt, "what")
			if what != "" {
				until[key] = seq
			}
			sum, accepted := queue.KeySum(key), bucket.MicrosOf(stored(seq))
			marker++
			switch what {
			case "intent":
				p.reader.takeMarker(markerEntry(rt, queue.IntentEntry, marker, []queue.Intent{{Seq: seq, Call: 1, Idempotency: keyed, KeySum: sum, Accepted: accepted}}))
				intents[key]++
			case "hold": // of every key, by a job whose call the api pushed back
				p.reader.takeMarker(markerEntry(rt, queue.RetryEntry, marker, queue.RetryMark{Seq: seq, Calls: 1, KeySum: sum, Accepted: accepted, Pushback: true}))
				blind = seq
			case "mark":
				p.reader.takeMarker(markerEntry(rt, queue.RetryEntry, marker, queue.RetryMark{Seq: seq, Calls: 1, KeySum: sum, Accepted: accepted}))
			case "record":
				records = append(records, ledger.Record{
					API: "other", Key: key, Stream: p.Bucket.Name(), Seq: seq, Call: 1, Outcome: "retry", Dedupe: fmt.Sprint(seq), Accepted: stored(seq),
				})
			case "gone": // of a job that has been deleted
				p.reader.takeMarker(markerEntry(rt, queue.RetryEntry, marker, queue.RetryMark{Seq: seq, Calls: 1, KeySum: sum}))
				jobs[i] = ""
			case "other": // of a job that had the sequence before
				p.reader.takeMarker(markerEntry(rt, queue.IntentEntry, marker, []queue.Intent{{Seq: seq, Call: 1, KeySum: sum, Accepted: accepted - 1}}))
			}
		}
		readLedger(rt, d, records)
		p.reader.markersLoaded()
		check := func(read uint64, whole bool) {
			for line := range w.Sched.Queues.All() {
				key := line.Key
				want := whole || blind <= read && until[key] <= read
				if may := p.Open && !line.Unread; may != want {
					rt.Fatalf("read up to %d: key %s may be called: %v, want %v (known up to %d, unknown keys up to %d)",
						read, key, may, want, until[key], blind)
				}
				if waits := line.TAT > w.Now(); want && waits != (intents[key] > 0) {
					rt.Fatalf("key %s, with %d calls that may have been made, waits an interval: %v", key, intents[key], waits)
				}
			}
		}
		check(0, false)
		last := 0
		for i, key := range jobs {
			if key != "" {
				p.reader.add(noMore(t), jobEntry(key, uint64(i+1)))
				check(uint64(i+1), false)
				last++
			}
		}
		p.reader.open(t.Context())
		check(uint64(len(jobs)), true)
		if await.Return(t, "the jobs of the worker", w.Running.Wait); w.Sched.At(w.Now()).Unfinished() != last || p.reader.replay != nil {
			rt.Fatalf("%d jobs, %d were read", w.Sched.At(w.Now()).Unfinished(), last)
		}
	})
}

// TestEachIntentOfAMessageCounts checks that a message of intents is in the history of each of its jobs.
func TestEachIntentOfAMessageCounts(t *testing.T) {
	d := newEnv(t)
	_, p := takingOver(t, d, payQueue(t, d), false, nil)
	intents := make([]queue.Intent, 3)
	for i := range intents {
		seq := uint64(i + 1)
		intents[i] = queue.Intent{Seq: seq, Call: 1, KeySum: queue.KeySum("a"), Accepted: bucket.MicrosOf(stored(seq))}
	}
	p.reader.takeMarker(markerEntry(t, queue.IntentEntry, 11, intents))
	for _, i := range intents {
		if h, _ := p.reader.replay.history(jobEntry("a", i.Seq)); h.intent == nil || h.intent.Mark.Users != len(intents) {
			t.Errorf("job %d: its intent is %+v", i.Seq, h.intent)
		}
	}
}

// TestWhatIsNotReadIsLeft checks that an owner that stops before it has read everything leaves the markers of unread
// jobs to the next owner.
func TestWhatIsNotReadIsLeft(t *testing.T) {
	d := newEnv(t)
	for _, stops := range []bool{true, false} {
		_, p := takingOver(t, d, payQueue(t, d), false, nil)
		sum := queue.KeySum("a")
		before := p.Bucket.Unswept()
		p.reader.takeMarker(markerEntry(t, queue.IntentEntry, 11, []queue.Intent{{Seq: 1, Call: 1, KeySum: sum, Accepted: bucket.MicrosOf(stored(1))}, {Seq: 2, Call: 1, KeySum: sum, Accepted: bucket.MicrosOf(stored(2))}}))
		p.reader.takeMarker(markerEntry(t, queue.RetryEntry, 12, queue.RetryMark{Seq: 2, Calls: 1, KeySum: sum}))
		p.reader.markersLoaded()
		p.reader.add(noMore(t), jobEntry("a", 1))
		want := 1 // the mark: of the intent's jobs the first needs it still
		if stops {
			want = 0
			p.Closing = true
			p.reader.add(noMore(t), jobEntry("a", 2))
		}
		p.reader.open(t.Context())
		if got := p.Bucket.Unswept() - before; got != want {
			t.Errorf("stops: %v, %d markers are to be deleted, want %d", stops, got, want)
		}
	}
}

// TestWaitingJobsOfOneKeyCostBytes checks that of a job that waits behind others only the sequence is kept, also during
// a takeover.
func TestWaitingJobsOfOneKeyCostBytes(t *testing.T) {
	d := newEnv(t)
	w, p := takingOver(t, d, payQueue(t, d), false, nil)
	p.reader.markersLoaded()
	const jobs = 200_000
	entry := jobEntry("a", 1)
	entry.Bare = true
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for seq := range uint64(jobs) {
		entry.Seq = seq + 1
		p.reader.add(t.Context(), entry)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := float64(after.HeapAlloc-before.HeapAlloc) / jobs; each > 16 {
		t.Errorf("a waiting job costs %.0f bytes", each)
	}
	if w.Sched.At(w.Now()).Unfinished() != jobs {
		t.Errorf("%d jobs wait", w.Sched.At(w.Now()).Unfinished())
	}
}

// TestIsReadDuringTheReplay checks that IsRead may be called while the reader ends the replay.
func TestIsReadDuringTheReplay(t *testing.T) {
	d := newEnv(t)
	_, p := takingOver(t, d, payQueue(t, d), false, nil)
	p.reader.markersLoaded()
	if p.IsRead() {
		t.Error("a partition is read before its replay has ended")
	}
	var reading sync.WaitGroup
	reading.Go(func() { p.reader.open(t.Context()) })
	await.Until(t, "the end of the replay", p.IsRead)
	await.Return(t, "the reading", reading.Wait)
}
