package letters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/store"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// TestRedriveAfterOverflow floods two buckets and redrives what overflowed: every job is called exactly once on an api
// that is not idempotent, those of a key in the order of their letters, and never over the rate.
func TestRedriveAfterOverflow(t *testing.T) {
	t.Parallel()
	const jobs, capacity = 60, 20
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, price: 0.10, jitter: 20ms, bucket: {rate: 50/s, capacity: 20}, keys: {b: {capacity: 90}}}
`)
	r.WhilePaused(func() {
		for i := range jobs {
			for _, key := range []string{"a", "b"} {
				r.Producer().Submit("weir.jobs.pay."+key, fmt.Appendf(nil, "%s-%d", key, i), map[string]string{"Weir-Path": "/" + key})
			}
		}
	})
	overflowed := r.Store().Messages(deadletter.Stream)
	r.Eventually("room", func() bool { return r.Store().Waiting("pay") == 0 })
	if overflowed != jobs-capacity {
		t.Fatalf("%d of %d jobs overflowed", overflowed, 2*jobs)
	}
	out, code := r.CLI().Run("dead", "redrive", "--dry-run", "--json")
	var plan deadview.RedrivePlan
	if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v", out, code, err)
	}
	if plan.Letters != overflowed || plan.Keys != 1 || plan.Cost != fmt.Sprintf("%.2f", float64(overflowed)/10) || plan.DurationMS == 0 ||
		plan.NoRoom != int64(max(0, overflowed-capacity)) {
		t.Errorf("the plan for %d letters is %+v", overflowed, plan)
	}
	if n := r.Store().Messages(deadletter.Stream); n != overflowed || len(r.API.All()) != 2*jobs-overflowed {
		t.Fatalf("a dry run left %d of %d letters, after %d calls", n, overflowed, len(r.API.All()))
	}
	letters := r.Store().Letters("pay", "a")
	if did, code := r.CLI().Redrive("--rate", "45/s"); code != 0 || did.Redriven != overflowed {
		t.Errorf("redriven: exit code %d, %+v", code, did)
	}
	arrivals := r.AwaitCalls(2 * jobs)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	for body, n := range r.Referee().PerBody() {
		if n != 1 {
			t.Errorf("%s was called %d times", body, n)
		}
	}
	called := slices.DeleteFunc(store.RecordsOf(t, r.JS), func(c ledger.Record) bool { return c.Key != "a" || !c.Sent })
	// A busy machine may let a call arrive just after the next one.
	slices.SortFunc(called, func(a, b ledger.Record) int { return a.Planned.Compare(b.Planned) })
	for i, letter := range letters {
		if got := called[len(called)-len(letters)+i].Job; got != letter.Header.Get("Weir-Job-Id") {
			t.Fatalf("letter %d of the key is of job %q, and the call in its place is of %q", i, letter.Header.Get("Weir-Job-Id"), got)
		}
	}
	r.Referee().CheckRate(fakeapi.OfKey(arrivals, "a"), bucket.Rate{Count: 50, Per: time.Second, Burst: 1})
	if n := r.Store().Messages(deadletter.Stream); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

// TestRedriveKeepsTheJob redrives a job twice that says all that a job can say: what the api gets is the same each time,
// the idempotency key too, and every letter counts the redrives before it.
func TestRedriveKeepsTheJob(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"p": {"status=400", "status=422"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    methods: [POST, PUT]
    idempotency: {header: Idempotency-Key}
    forward_headers: [Content-Type, X-Source]
    bucket: {rate: 100/s, capacity: 20}
`, api.URL()))
	ends, err := r.NC.SubscribeSync("_INBOX.mine")
	if err != nil {
		t.Fatal(err)
	}
	header := map[string]string{
		"Nats-Msg-Id": "sent-1", "Weir-Job-Id": "order-7", "Weir-Method": "PUT", "Weir-Path": "/a/p", "Weir-Query": "x=1", "X-Own": "kept",
		"Weir-Header-X-Source": "shop", "Content-Type": "text/csv", "Weir-Reply-To": "_INBOX.mine", "Weir-Deadline": "1h", "Weir-Cost": "3",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	body := []byte("a\x00b\xff")
	if a := r.Producer().Submit("weir.jobs.pay.k%201", body, header); a.Error != nil {
		t.Fatal(a.Error)
	}
	for n := range 2 {
		r.Store().Ended("pay", "k%201", 1)
		letter := r.Store().Letters("pay", "k%201")[0]
		if letter.Header.Get("Weir-Redrives") != strconv.Itoa(n) || !bytes.Equal(letter.Data, body) || letter.Header.Get("X-Own") != "kept" ||
			letter.Header.Get("Weir-Job-Id") != "order-7" {
			t.Errorf("letter %d is %v %q", n, letter.Header, letter.Data)
		}
		if did, code := r.CLI().Redrive(strconv.FormatUint(letter.Sequence, 10)); code != 0 || did.Redriven != 1 {
			t.Fatalf("redrive %d: exit code %d, %+v", n+1, code, did)
		}
		r.AwaitCalls(n + 2)
	}
	r.Eventually("a result", func() bool { return len(r.Store().Results("pay", "k%201")) == 1 })
	if n := r.Store().Messages(deadletter.Stream); n != 0 {
		t.Errorf("%d letters beside the result", n)
	}
	arrivals := r.API.All()
	for _, a := range arrivals {
		if a.Method != "PUT" || a.Path != "/a/p" || a.Query != "x=1" || !bytes.Equal(a.Body, body) || a.Header("Idempotency-Key") != "order-7" ||
			a.Header("Content-Type") != "text/csv" {
			t.Errorf("the api got %+v", a)
		}
	}
	for _, outcome := range []string{"rejected", "rejected", "done"} {
		if msg, err := ends.NextMsg(weirtest.Patience); err != nil || msg.Header.Get("Weir-Outcome") != outcome {
			t.Errorf("the waiting client was told %v %v, want %s", msg, err, outcome)
		}
	}
}

// TestRedriveOverflowsAgain: what finds no room again is one letter again, a new one that knows of the redrive.
func TestRedriveOverflowsAgain(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 3}}
`)
	r.Producer().Submit("weir.jobs.pay.k", nil, nil) // is called at once, the next in an hour
	r.AwaitCalls(1)
	r.Eventually("an empty bucket", func() bool { return r.Store().Depth("pay", "k") == 0 })
	for i := range 8 {
		r.Producer().Submit("weir.jobs.pay.k", nil, map[string]string{"Nats-Msg-Id": fmt.Sprint(i)})
	}
	for round := 1; round <= 2; round++ {
		did, code := r.CLI().Redrive()
		if code != cli.ExitRefused || did.Overflowed != 5 || did.Redriven != 0 {
			t.Errorf("round %d: exit code %d, %+v", round, code, did)
		}
		jobs := map[string]int{}
		for _, letter := range r.Store().Letters("pay", "k") {
			jobs[letter.Header.Get("Weir-Job-Id")]++
			if letter.Header.Get("Weir-Redrives") != strconv.Itoa(round) {
				t.Errorf("round %d: a letter says %v", round, letter.Header)
			}
		}
		for i := 3; i < 8; i++ {
			if jobs[fmt.Sprint(i)] != 1 || len(jobs) != 5 {
				t.Errorf("round %d: the letters are of %v", round, jobs)
			}
		}
	}
	if depth := r.Store().Depth("pay", "k"); depth != 3 {
		t.Errorf("%d jobs wait", depth)
	}
}

// TestRedriveGoesOnAfterAKill: whatever became of a job whose redrive was killed between the receipt and the deletion,
// and however long ago, the next redrive does not hand it in again. The api is not idempotent.
func TestRedriveGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{
		"waits": {"status=400"}, "called": {"status=400"}, "died": {"status=400", "status=404"}, "fresh": {"status=400"},
	})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 4}, keys: {full: {rate: 1/h, capacity: 1}, waits: {rate: 1/h}}}
`, api.URL()))
	keys := []string{"waits", "called", "died", "fresh"}
	for _, key := range keys {
		r.Producer().Submit("weir.jobs.pay."+key, []byte(key), map[string]string{"Nats-Msg-Id": key, "Weir-Path": "/" + key})
		r.Store().Ended("pay", key, 1)
	}
	r.Producer().Submit("weir.jobs.pay.full", nil, nil)
	r.AwaitCalls(len(keys) + 1)
	r.Eventually("an empty bucket", func() bool { return r.Store().Depth("pay", "full") == 0 })
	r.Producer().Submit("weir.jobs.pay.full", nil, map[string]string{"Nats-Msg-Id": "first"})
	r.Producer().Submit("weir.jobs.pay.full", []byte("again"), map[string]string{"Nats-Msg-Id": "again"})

	for _, key := range []string{"waits", "called", "died"} {
		header := resubmission(r, key, key, 1)
		header["Weir-Path"] = "/" + key
		r.Producer().Submit(ingest.RedrivePrefix+"pay."+key, []byte(key), header)
	}
	r.Producer().Submit(ingest.RedrivePrefix+"pay.full", []byte("again"), resubmission(r, "full", "again", 1)) // overflows again
	r.Producer().Submit("weir.jobs.pay.probe", []byte("probe"), map[string]string{"Nats-Msg-Id": "probe"})
	r.Store().Ended("pay", "called", 2)
	r.Store().Ended("pay", "died", 2)
	r.Eventually("the ids to be forgotten", func() bool {
		return !r.Producer().Submit("weir.jobs.pay.probe", []byte("probe"), map[string]string{"Nats-Msg-Id": "probe"}).Duplicate
	})
	did, code := r.CLI().Redrive("--reason", "rejected")
	if code != 0 || did.Redriven != 2 || did.Settled != 3 {
		t.Errorf("exit code %d, %+v: one was never redriven, one died again, and three had gone on", code, did)
	}
	did, code = r.CLI().Redrive("--key", "full")
	if code != cli.ExitRefused || did.Settled != 1 || did.Overflowed != 1 {
		t.Errorf("exit code %d, %+v: one of two letters had a later one", code, did)
	}
	r.Store().Ended("pay", "died", 1)
	r.Store().Ended("pay", "fresh", 1)
	want := map[string]int{"": 1, "waits": 1, "called": 2, "died": 3, "fresh": 2}
	calls := r.Referee().PerBody()
	delete(calls, "probe")
	if !maps.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	if letters := r.Store().Letters("pay", "full"); len(letters) != 1 || letters[0].Header.Get("Weir-Redrives") != "2" {
		t.Errorf("%d letters of a job that overflowed thrice", len(letters))
	}
	if depth := r.Store().Depth("pay", "waits"); depth != 1 {
		t.Errorf("%d jobs wait where one was redriven", depth)
	}
}

// TestRedriveLeavesAlone is what a redrive does not touch without an explicit word.
func TestRedriveLeavesAlone(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"unsure": {"status=500"}, "sure": {"status=400"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay: {url: "%s", price: 1.00, bucket: {rate: 100/s, capacity: 5}, keys: {slow: {rate: 1/h, capacity: 1}}}
`, api.URL()))
	r.Producer().Submit("weir.jobs.pay.unsure", []byte("unsure"), map[string]string{"Weir-Path": "/unsure"})
	r.Store().Ended("pay", "unsure", 1)
	r.Producer().Submit("weir.jobs.pay.slow", nil, nil)
	r.AwaitCalls(2)
	r.Eventually("an empty bucket", func() bool { return r.Store().Depth("pay", "slow") == 0 })
	r.Producer().Submit("weir.jobs.pay.slow", nil, nil) // waits for an hour

	late := func(deadline string) producer.Answer {
		return r.Producer().Submit("weir.jobs.pay.slow", []byte("late"), map[string]string{"Weir-Deadline": deadline})
	}
	if a := late("1ms"); a.Letter == 0 {
		t.Fatalf("answered %+v", a)
	}
	// On a busy machine a deadline may pass before it is read. Then the job is no overflow.
	for ahead := 50 * time.Millisecond; ; ahead *= 4 {
		a := late(time.Now().Add(ahead).UTC().Format(time.RFC3339Nano))
		if a.Error != nil && a.Error.Code == 429 {
			break
		}
		if _, code := r.CLI().Run("dead", "purge", strconv.FormatUint(a.Letter, 10), "--yes"); code != 0 || ahead > weirtest.Patience {
			t.Fatalf("a job with a deadline %s ahead is answered %+v", ahead, a)
		}
	}
	r.Producer().Submit("weir.jobs.pay.slow", nil, nil) // overflows, and has no deadline
	r.Eventually("the deadlines", func() bool { return r.CLI().Skips("slow")[deadletter.SkipDeadline] == 2 })
	if did, code := r.CLI().Redrive("--reason", "unknown"); code != cli.ExitRefused || did.Redriven != 0 || len(r.Store().Letters("pay", "unsure")) != 1 {
		t.Errorf("unknown: exit code %d, %+v", code, did)
	}
	if did, code := r.CLI().Redrive("--reason", "unknown", "--include-unknown"); code != 0 || did.Redriven != 1 {
		t.Errorf("unknown, included: exit code %d, %+v", code, did)
	}
	r.Eventually("its result", func() bool { return len(r.Store().Results("pay", "unsure")) == 1 })
	if did, code := r.CLI().Redrive("--key", "slow", "--drop-deadline"); code != cli.ExitRefused || did.Overflowed != 3 {
		t.Errorf("without deadlines: exit code %d, %+v", code, did)
	}
	for _, letter := range r.Store().Letters("pay", "slow") {
		if letter.Header.Get("Weir-Deadline") != "" {
			t.Errorf("a dropped deadline stands in the next letter: %v", letter.Header)
		}
	}
}

// TestRedriveKeyElsewhere redrives a job whose key stands in a header.
func TestRedriveKeyElsewhere(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, key: {from: "header:X-Customer"}, bucket: {rate: 100/s, capacity: 1}}
`)
	r.Eventually("an overflow", func() bool {
		return r.Producer().Submit("weir.jobs.pay", []byte("b"), map[string]string{"X-Customer": "c 1"}).Letter > 0
	})
	r.Eventually("room", func() bool { return r.Store().Waiting("pay") == 0 })
	before := len(r.Store().Letters("pay", "c%201"))
	if did, code := r.CLI().Redrive("--key", "c 1", "--rate", "20/s"); code != 0 || did.Redriven != before {
		t.Errorf("exit code %d, %+v of %d", code, did, before)
	}
	if n := r.Store().Messages(deadletter.Stream); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}
