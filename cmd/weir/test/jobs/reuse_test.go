package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/weirtest"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reuseRig is a weir whose api holds calls back until a test lets them go. The key of a call is the last part of its
// path.
type reuseRig struct {
	*weirtest.Rig
	gate chan struct{} // calls whose path begins with /v1/held wait until it is closed
}

const reuseYAML = `
apis:
  pay:
    url: %s/v1
    methods: [POST, GET]
    price: 0.25
    timeout: 1m
    bucket: {rate: 200/s, capacity: 500, in_flight: 4}
    keys: {slow: {rate: 1/h}}
    forward_headers: [Accept]
    retry: {attempts: 3, min: 5ms, max: 20ms}
    reuse: {for: 1h}
  open: {url: %[1]s/v1, bucket: {rate: 200/s, capacity: 500}, keys: {slow: {rate: 1/h}}, reuse: {for: 1h, across_keys: true}}
  brief: {url: %[1]s/v1, bucket: {rate: 200/s, capacity: 500}, reuse: {for: 3s}}
  bodies: {url: %[1]s/v1, bucket: {rate: 200/s, capacity: 500}, reuse: {for: 1h, of: [body]}}
  paths: {url: %[1]s/v1, forward_headers: [Accept, X-Kind], bucket: {rate: 200/s, capacity: 500}, reuse: {for: 1h, of: [path, "header:X-Kind"]}}
results: {max_body: 1KiB}
`

// newReuseRig starts a weir. orders are what the api does with the calls of a key, in order; it succeeds at the others.
func newReuseRig(t *testing.T, orders map[string][]string) *reuseRig {
	t.Helper()
	r := &reuseRig{gate: make(chan struct{})}
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 64,
		Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if strings.HasPrefix(q.Path, "/v1/held") {
				q.Body()
				select {
				case <-r.gate:
				case <-ctx.Done():
				}
			}
			of := orders[q.Key]
			if q.KeyCall > int64(len(of)) {
				return fakeapi.Behaviour{}
			}
			b, err := fakeapi.ParseBehaviour(of[q.KeyCall-1])
			if err != nil {
				t.Error(err)
			}
			return b
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r.Rig = weirtest.RigOn(t, api, fmt.Sprintf(reuseYAML, api.URL()))
	return r
}

// ask submits a job for a path.
func (r *reuseRig) ask(api, key, id, path string, more ...string) {
	r.T.Helper()
	h := nats.Header{"Nats-Msg-Id": {id}, "Weir-Path": {path}}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = []string{more[i+1]}
	}
	r.Producer().Send(api, key, h, "the question")
}

// calls returns how many calls for a path's last part arrived.
func (r *reuseRig) calls(last string) int { return len(r.API.Arrivals(last)) }

// ends waits for n ends of a key and returns the results by their jobs.
func (r *reuseRig) ends(api, key string, n int) map[string]*jetstream.RawStreamMsg {
	r.T.Helper()
	r.Store().Ended(api, key, n)
	results := r.Store().Results(api, key)
	by := byJob(results)
	if len(by) != len(results) {
		r.T.Errorf("%d results of %d jobs", len(results), len(by))
	}
	return by
}

func byJob(results []*jetstream.RawStreamMsg) map[string]*jetstream.RawStreamMsg {
	by := map[string]*jetstream.RawStreamMsg{}
	for _, m := range results {
		by[m.Header.Get("Weir-Job-Id")] = m
	}
	return by
}

// from returns whose answer a job got, "" for its own.
func from(m *jetstream.RawStreamMsg) string {
	if m == nil {
		return "nothing"
	}
	return m.Header.Get(ledger.HeaderReused)
}

// waitsForAnswer waits until the next job of a key waits for the answer to a job.
func (r *reuseRig) waitsForAnswer(api, key, leader string) {
	r.T.Helper()
	want := "the answer to an equal job: job " + leader
	r.Eventually("a job that waits for "+leader, func() bool {
		return strings.Contains(r.CLI().Must("show", api, key), want)
	})
}

// TestEqualJobsShareOneCall: 100 equal jobs are called once. The others wait for that answer, and each gets a result, a
// reply and a record that costs nothing.
func TestEqualJobsShareOneCall(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	replies, err := r.NC.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 100
	for i := range jobs {
		r.ask("pay", "a", fmt.Sprint("job-", i), "/held", "Weir-Reply-To", replies.Subject)
	}
	r.waitsForAnswer("pay", "a", "job-0")
	if out := r.CLI().Must("job", "job-1"); !strings.Contains(out, "job job-0 asks the same") {
		t.Errorf("the second job's story: %s", out)
	}
	close(r.gate)
	results := r.ends("pay", "a", jobs)
	if n := r.calls("held"); n != 1 {
		t.Errorf("%d calls", n)
	}
	body := string(results["job-0"].Data)
	if from(results["job-0"]) != "" || body == "" {
		t.Errorf("the first job's result: %v %q", results["job-0"].Header, body)
	}
	for i := 1; i < jobs; i++ {
		m := results[fmt.Sprint("job-", i)]
		if from(m) != "job-0" {
			t.Fatalf("job %d got the answer of %q", i, from(m))
		}
		if h := m.Header; string(m.Data) != body || h.Get("Weir-Outcome") != "done" || h.Get("Weir-Status") != "200" || h.Get("Weir-Calls") != "0" ||
			h.Get("Weir-Price") != "0.00" || h.Get("Content-Type") != results["job-0"].Header.Get("Content-Type") || h.Get(ledger.HeaderRequest) != "" {
			t.Fatalf("job %d: %v %q", i, h, m.Data)
		}
	}
	told := map[string]bool{}
	for range jobs {
		msg, err := replies.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if told[msg.Header.Get("Weir-Job-Id")] = true; string(msg.Data) != body {
			t.Fatalf("the reply to %s: %q", msg.Header.Get("Weir-Job-Id"), msg.Data)
		}
	}
	if len(told) != jobs {
		t.Errorf("%d jobs have a reply", len(told))
	}
	for i, c := range r.Store().Ledger("pay", "a") {
		switch {
		case i == 0 && (c.Outcome != ledger.Done || c.Call != 1 || c.Price != "0.25"):
			t.Errorf("the call's record: %+v", c)
		case i > 0 && (c.Outcome != ledger.Reused || !c.Final || c.Call != 0 || c.Sent || c.Price != "0.00" || c.Saved != "0.25" || c.ReusedFrom != "job-0" || c.Billed != "no" || c.Limits != nil):
			t.Fatalf("record %d: %+v", i, c)
		}
	}
	var spent spend.Account
	if err := json.Unmarshal([]byte(r.CLI().Must("spend", "--json")), &spent); err != nil || spent.Spent != "0.25" || spent.Reused != jobs-1 || spent.Saved != "24.75" {
		t.Errorf("%v: %+v", err, spent)
	}
	if out := r.CLI().Must("status"); !strings.Contains(out, "REUSED TODAY") || !strings.Contains(out, "24.75") {
		t.Errorf("the status: %s", out)
	}
	if out := r.CLI().Must("verify", "--api", "pay"); !strings.Contains(out, "99 jobs that got the answer of an equal one") {
		t.Errorf("verify: %s", out)
	}
	if out := r.CLI().Must("job", "job-7"); !strings.Contains(out, "not called: it got the answer of job job-0") || !strings.Contains(out, "done") {
		t.Errorf("the story of job 7: %s", out)
	}
}

// TestAnswersNeedNoSlotOfTheirKey: equal jobs of a key that may be called once an hour end at once, in their order, up
// to the first that asks something else.
func TestAnswersNeedNoSlotOfTheirKey(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	for i := range 5 {
		r.ask("pay", "slow", fmt.Sprint("job-", i), "/slowly")
	}
	r.ask("pay", "slow", "other", "/other")
	r.ask("pay", "slow", "behind", "/slowly")
	r.Eventually("the ends of the equal jobs", func() bool { return len(r.Store().Results("pay", "slow")) == 5 })
	if n := r.calls("slowly"); n != 1 || r.calls("other") != 0 {
		t.Errorf("%d calls of equal jobs, %d of another", n, r.calls("other"))
	}
	for i := range 5 {
		want := "job-0"
		if i == 0 {
			want = ""
		}
		if got := from(byJob(r.Store().Results("pay", "slow"))[fmt.Sprint("job-", i)]); got != want {
			t.Errorf("job %d got the answer of %q", i, got)
		}
	}
}

// TestKeysShareOnlyIfTheyMay: jobs of different keys share an answer, and wait for one, only with across_keys.
func TestKeysShareOnlyIfTheyMay(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	for _, api := range []string{"pay", "open"} {
		for _, key := range []string{"x", "y", "z"} {
			r.ask(api, key, api+"-"+key, "/held-"+api)
		}
	}
	r.Eventually("the calls", func() bool { return r.calls("held-pay") == 3 && r.calls("held-open") == 1 })
	leader := ""
	r.Eventually("two keys that wait for the third", func() bool {
		waiting := 0
		for _, key := range []string{"x", "y", "z"} {
			if strings.Contains(r.CLI().Must("show", "open", key), "asks the same") {
				waiting++
			} else {
				leader = "open-" + key
			}
		}
		return waiting == 2
	})
	close(r.gate)
	for _, key := range []string{"x", "y", "z"} {
		if m := r.ends("pay", key, 1)["pay-"+key]; from(m) != "" {
			t.Errorf("key %s got the answer of %s", key, from(m))
		}
		m := r.ends("open", key, 1)["open-"+key]
		if got := from(m); "open-"+key != leader && got != leader || "open-"+key == leader && got != "" {
			t.Errorf("across keys, key %s got the answer of %q", key, got)
		}
	}
	if n := r.calls("held-open"); n != 1 {
		t.Errorf("%d calls across keys", n)
	}
}

// TestWhatMustBeEqual: the whole request is compared, or what `of` names of it.
func TestWhatMustBeEqual(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("pay", "a", "1", "/p1")
	r.ask("pay", "a", "2", "/p2")
	r.ask("pay", "a", "3", "/p1", "Weir-Method", "GET")
	r.ask("pay", "a", "4", "/p1", "Weir-Query", "q=1")
	r.ask("pay", "a", "5", "/p1", "Weir-Header-Accept", "text/plain")
	got := r.ends("pay", "a", 5)
	for id, want := range map[string]string{"1": "", "2": "", "3": "", "4": "", "5": ""} {
		if from(got[id]) != want {
			t.Errorf("job %s got the answer of %q, want %q", id, from(got[id]), want)
		}
	}
	r.ask("bodies", "a", "b1", "/b1")
	r.ask("bodies", "a", "b2", "/b2")
	if got := r.ends("bodies", "a", 2); from(got["b2"]) != "b1" {
		t.Errorf("equal bodies: the answer of %q", from(got["b2"]))
	}
	r.ask("paths", "a", "h1", "/h", "Weir-Header-X-Kind", "one", "Weir-Header-Accept", "text/plain")
	r.ask("paths", "a", "h2", "/h", "Weir-Header-X-Kind", "two")
	r.ask("paths", "a", "h3", "/h", "Weir-Header-X-Kind", "one", "Weir-Header-Accept", "text/html")
	if got := r.ends("paths", "a", 3); from(got["h2"]) != "" || from(got["h3"]) != "h1" {
		t.Errorf("headers: the answers of %q and %q", from(got["h2"]), from(got["h3"]))
	}
}

// TestAnswersExpire: an answer is not given when it is older than the rule says, and one that was given again becomes
// no younger. A longer time lets earlier answers be given again.
func TestAnswersExpire(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("brief", "b", "old", "/old")
	r.ends("brief", "b", 1)
	n := 0
	r.Eventually("a second call", func() bool {
		n++
		r.ask("brief", "a", fmt.Sprint("job-", n), "/brief")
		r.Store().Ended("brief", "a", n)
		return r.calls("brief") == 2
	})
	if n < 3 {
		t.Errorf("the call is repeated at job %d: no answer was given again", n)
	}
	r.Follow(strings.Replace(reuseYAML, "reuse: {for: 3s}", "reuse: {for: 1h}", 1))
	r.Eventually("the answers to be read", func() bool {
		d, err := r.Worker.Parts().Dispatcher.Desk.Detail("brief", 1)
		return err == nil && d.Reuse != nil && d.Reuse.Answers == 2
	})
	r.ask("brief", "b", "again", "/old")
	if got := r.ends("brief", "b", 2); from(got["again"]) != "old" || r.calls("old") != 1 {
		t.Errorf("%d calls; the answer of %q", r.calls("old"), from(got["again"]))
	}
}

// TestNextIsCalledIfTheLeaderFails: if the job that is called for others becomes a letter, the next one is called, and
// the others wait for that.
func TestNextIsCalledIfTheLeaderFails(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, map[string][]string{"held": {"status=400"}, "held-retry": {"status=503", "status=503"}})
	for i := range 4 {
		r.ask("pay", "a", fmt.Sprint("job-", i), "/held")
		r.ask("pay", "b", fmt.Sprint("again-", i), "/held-retry")
	}
	r.waitsForAnswer("pay", "a", "job-0")
	r.waitsForAnswer("pay", "b", "again-0")
	close(r.gate)
	got := r.ends("pay", "a", 4)
	if n := r.calls("held"); n != 2 || len(r.Store().Letters("pay", "a")) != 1 || got["job-0"] != nil || from(got["job-1"]) != "" {
		t.Errorf("%d calls, %d letters, the second job got the answer of %q", n, len(r.Store().Letters("pay", "a")), from(got["job-1"]))
	}
	if from(got["job-2"]) != "job-1" || from(got["job-3"]) != "job-1" {
		t.Errorf("the others got the answers of %q and %q", from(got["job-2"]), from(got["job-3"]))
	}
	got = r.ends("pay", "b", 4)
	if n := r.calls("held-retry"); n != 3 || from(got["again-0"]) != "" {
		t.Errorf("%d calls of a job that is pushed back twice", n)
	}
	for i := 1; i < 4; i++ {
		if id := fmt.Sprint("again-", i); from(got[id]) != "again-0" {
			t.Errorf("%s got the answer of %q", id, from(got[id]))
		}
	}
}

// TestSomeAnswersAreNotGivenAgain: a stream, a part, an answer that is longer than results may be, and one that is not
// 2xx are the answers of their own job only.
func TestSomeAnswersAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	of := map[string]string{
		"stream": "header=Content-Type:text/event-stream", "long": "size=5000", "unchanged": "status=304", "part": "status=206",
	}
	orders := map[string][]string{}
	for key, order := range of {
		orders[key] = []string{order, order}
	}
	r := newReuseRig(t, orders)
	for key := range of {
		r.ask("pay", key, key+"-1", "/"+key)
		r.ask("pay", key, key+"-2", "/"+key)
	}
	for key := range of {
		got := r.ends("pay", key, 2)
		if n := r.calls(key); n != 2 || from(got[key+"-1"]) != "" || from(got[key+"-2"]) != "" {
			t.Errorf("%s: %d calls; the second job got the answer of %q", key, n, from(got[key+"-2"]))
		}
	}
}

// TestWaitingJobsEndAsOthersDo: a job that waits for an equal one's answer can be cancelled, ends at its deadline, and
// is called when the answers of its api are no longer shared.
func TestWaitingJobsEndAsOthersDo(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("pay", "a", "leader", "/held")
	r.ask("pay", "a", "cancelled", "/held")
	r.ask("pay", "a", "third", "/held")
	r.ask("pay", "late", "late-leader", "/held-late")
	r.ask("pay", "late", "late", "/held-late", "Weir-Deadline", "1s")
	r.waitsForAnswer("pay", "a", "leader")
	r.CLI().Must("cancel", "pay", "cancelled")
	r.Eventually("the letters", func() bool {
		return len(r.Store().Letters("pay", "a")) == 1 && len(r.Store().Letters("pay", "late")) == 1
	})
	if got := r.Store().Letters("pay", "a")[0].Header; got.Get("Weir-Dead-Reason") != "cancelled" || got.Get("Weir-Job-Id") != "cancelled" {
		t.Errorf("the cancelled job's letter: %v", got)
	}
	if got := r.Store().Letters("pay", "late")[0].Header; got.Get("Weir-Dead-Reason") != "expired" || got.Get("Weir-Job-Id") != "late" {
		t.Errorf("the late job's letter: %v", got)
	}
	r.waitsForAnswer("pay", "a", "leader")
	if n := r.calls("held"); n != 1 {
		t.Fatalf("%d calls", n)
	}
	r.Follow(strings.Replace(reuseYAML, "    reuse: {for: 1h}\n", "", 1))
	r.Eventually("a call of the third job", func() bool { return r.calls("held") == 2 })
	close(r.gate)
	if got := r.ends("pay", "a", 3); from(got["leader"]) != "" || from(got["third"]) != "" {
		t.Errorf("answers of %q and %q", from(got["leader"]), from(got["third"]))
	}
	if got := r.ends("pay", "late", 2); from(got["late-leader"]) != "" {
		t.Errorf("the answer of %q", from(got["late-leader"]))
	}
}

// TestPausedJobsGetNoAnswer: while a key is paused, its jobs do not end with an answer either.
func TestPausedJobsGetNoAnswer(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("pay", "a", "one", "/paused")
	r.ends("pay", "a", 1)
	r.PutPause("a")
	r.ask("pay", "a", "two", "/paused")
	r.ask("pay", "b", "free", "/free")
	r.ends("pay", "b", 1)
	if n := len(r.Store().Results("pay", "a")); n != 1 {
		t.Errorf("%d results of a paused key", n)
	}
	r.CLI().Must("resume", "pay", "a")
	if got := r.ends("pay", "a", 2); from(got["two"]) != "one" {
		t.Errorf("after the pause: the answer of %q", from(got["two"]))
	}
}

// TestNoJobWaitsForAKeyThatIsNotCalled: jobs of other keys do not wait for a job that waits for its retry if its key is
// paused, is held for long, or has its next slot in an hour.
func TestNoJobWaitsForAKeyThatIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, order string
		pause      bool
	}{
		"paused": {"x", "status=503;retry-after=8", true}, "held": {"x", "status=503;retry-after=3600", false}, "slow": {"slow", "status=503", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReuseRig(t, map[string][]string{"busy": {c.order}})
			r.ask("open", c.key, "x", "/busy")
			r.Eventually("the pushback", func() bool { return len(r.Store().Ledger("open", c.key)) == 1 })
			r.ask("open", "y", "y", "/busy")
			if c.pause {
				r.waitsForAnswer("open", "y", "x")
				r.CLI().Must("pause", "open", c.key)
			}
			if got := r.ends("open", "y", 1); from(got["y"]) != "" || r.calls("busy") != 2 {
				t.Errorf("%d calls; the answer of %q", r.calls("busy"), from(got["y"]))
			}
			r.CLI().Must("cancel", "open", "x")
		})
	}
}

// TestAnswersSurviveARestart: a weir that starts reads from the results which answers may be given again.
func TestAnswersSurviveARestart(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("pay", "a", "one", "/kept")
	r.ask("pay", "a", "two", "/kept") // its result is no answer of its own
	r.ends("pay", "a", 2)
	r.Stop()
	r.Start()
	r.Eventually("the answers to be read", func() bool {
		d, err := r.Worker.Parts().Dispatcher.Desk.Detail("pay", 1)
		return err == nil && d.Reuse != nil && d.Reuse.Answers == 1
	})
	r.ask("pay", "a", "three", "/kept")
	if got := r.ends("pay", "a", 3); from(got["three"]) != "one" || r.calls("kept") != 1 {
		t.Errorf("%d calls; the answer of %q", r.calls("kept"), from(got["three"]))
	}
}

// TestGoneAnswersAreAskedAgain: if the result of a remembered answer is gone, the job is called.
func TestGoneAnswersAreAskedAgain(t *testing.T) {
	t.Parallel()
	r := newReuseRig(t, nil)
	r.ask("pay", "a", "one", "/gone")
	r.ends("pay", "a", 1)
	s, err := r.Operators().Stream(t.Context(), ledger.ResultsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.ask("pay", "a", "two", "/gone")
	if got := r.ends("pay", "a", 1); from(got["two"]) != "" || r.calls("gone") != 2 {
		t.Errorf("%d calls; the answer of %q", r.calls("gone"), from(got["two"]))
	}
}
