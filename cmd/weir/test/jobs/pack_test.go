package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
)

// packedCall is one call as the api of a packRig got it.
type packedCall struct {
	key  string // its idempotency key
	jobs []packedJob
}

// packedJob is a job as it stands in a pack, and what the api is to answer it.
type packedJob struct {
	N    int  `json:"n"`
	Code int  `json:"code,omitempty"` // its status; 0: 200
	Mute bool `json:"mute,omitempty"` // it gets no answer
	Fail int  `json:"fail,omitempty"` // the status of the first call with it; 0: 200
}

// packRig is a weir whose api takes several jobs in one call.
type packRig struct {
	*weirtest.Rig
	mu     sync.Mutex
	calls  []packedCall
	failed map[int]bool
}

const packYAML = `
apis:
  order:
    url: %s/order
    price: [{each: 0.50}, {each: 0.01, from: "json:/n", default: 0}]
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 2000, in_flight: 4}
    limits: [{name: account, rate: 1000/s}, {name: calls, quota: 1000/day}]
    retry: {attempts: 3, min: 5ms, max: 20ms}
    pack: {jobs: 50, wait: 1s}
  match:
    url: %[1]s/match
    bucket: {rate: 100/s, capacity: 2000}
    retry: {attempts: 3, min: 5ms, max: 20ms}
    pack: {jobs: 10, wait: 300ms, request: {under: /in}, answers: {under: /out}, match: /n, status: /code}
  small:
    url: %[1]s/small
    max_body: 1KiB
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 2000}
    pack: {jobs: 500, wait: 300ms}
`

func newPackRig(t *testing.T) *packRig {
	t.Helper()
	r := &packRig{failed: map[int]bool{}}
	api, err := fakeapi.Start(fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, KeepBody: 64,
		Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour { return r.answer(q) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	r.Rig = weirtest.RigOn(t, api, fmt.Sprintf(packYAML, api.URL()))
	return r
}

// answer is the api: it answers each job of a call with its number and its code.
func (r *packRig) answer(q *fakeapi.Request) fakeapi.Behaviour {
	under := q.Key == "match"
	var body struct{ In []packedJob }
	into := any(&body.In)
	if under {
		into = &body
	}
	if err := json.Unmarshal(q.Body(), into); err != nil {
		return fakeapi.Behaviour{Status: 400}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, packedCall{q.Header.Get("Idempotency-Key"), body.In})
	answers := []packedJob{}
	for _, j := range body.In {
		if j.Fail != 0 && !r.failed[j.N] {
			r.failed[j.N] = true
			return fakeapi.Behaviour{Status: j.Fail}
		}
		if j.Mute {
			continue
		}
		answers = append(answers, packedJob{N: j.N, Code: max(200, j.Code)})
	}
	var out any = answers
	if under {
		out = map[string]any{"out": answers}
	}
	text, err := json.Marshal(out)
	if err != nil {
		r.T.Error(err)
	}
	return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: string(text)}
}

// made returns the calls so far.
func (r *packRig) made() []packedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]packedCall(nil), r.calls...)
}

// give submits jobs.
func (r *packRig) give(api, key string, jobs ...packedJob) {
	r.T.Helper()
	msgs := make([]*nats.Msg, len(jobs))
	for i, j := range jobs {
		body, err := json.Marshal(j)
		if err != nil {
			r.T.Fatal(err)
		}
		msgs[i] = &nats.Msg{
			Subject: "weir.jobs." + api + "." + key, Data: body, Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint("job-", j.N)}},
		}
	}
	producer.FillTaken(r.T, r.NC, msgs)
}

// TestPacks: 1,000 jobs take at most 25 calls of 50 jobs. Each job gets its own answer, record and share of the price,
// and the records add up to what the calls took.
func TestPacks(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	const jobs = 1000
	var all []packedJob
	for n := range jobs {
		all = append(all, packedJob{N: n + 1})
	}
	r.give("order", "a", all...)
	r.Store().Ended("order", "a", jobs)
	calls := r.made()
	if len(calls) > 25 {
		t.Errorf("%d calls", len(calls))
	}
	records := r.Store().Ledger("order", "a")
	planned := map[string]time.Time{} // by pack: a busy machine may let a call arrive just after the next one
	for _, c := range records {
		if c.Pack == nil {
			t.Fatalf("%+v", c)
		}
		planned[c.Pack.ID] = c.Planned
	}
	slices.SortStableFunc(calls, func(a, b packedCall) int { return planned[a.key].Compare(planned[b.key]) })
	next := 1
	keys := map[string]bool{}
	for _, c := range calls {
		keys[c.key] = true
		for _, j := range c.jobs {
			if j.N != next {
				t.Fatalf("job %d is called when it is the turn of %d", j.N, next)
			}
			next++
		}
	}
	if len(keys) != len(calls) {
		t.Errorf("%d calls have %d keys", len(calls), len(keys))
	}
	results := byJob(r.Store().Results("order", "a"))
	for n := range jobs {
		id := fmt.Sprint("job-", n+1)
		if got, want := string(results[id].Data), fmt.Sprintf(`{"n":%d,"code":200}`, n+1); got != want {
			t.Fatalf("%s got %s", id, got)
		}
	}
	var price, units int64
	for _, c := range records {
		p, _ := ledger.ParseMoney(c.Price)
		price += p
		for _, n := range c.Costs {
			units += n
		}
		if !keys[c.Pack.ID] || c.Outcome != ledger.Done || !strings.Contains(c.Idempotency, c.Pack.ID) {
			t.Fatalf("%+v", c)
		}
	}
	if want := int64(len(calls))*500_000 + 10_000*jobs*(jobs+1)/2; len(records) != jobs || price != want || units != int64(2*len(calls)) {
		t.Errorf("%d records cost %d, want %d, and took %d units in %d calls", len(records), price, want, units, len(calls))
	}
	if out := r.CLI().Must("verify", "--api", "order"); !strings.Contains(out, fmt.Sprintf("%d calls", len(calls))) {
		t.Error(out)
	}
	if out := r.CLI().Must("job", "job-7"); !strings.Contains(out, "in pack ") {
		t.Error(out)
	}
}

// TestPackOfManyIntents: a pack has no more jobs than one message of the queue has room for their intents. That message
// is short because the api takes short bodies only.
func TestPackOfManyIntents(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	const jobs = 400
	var all []packedJob
	for n := range jobs {
		all = append(all, packedJob{N: n + 1})
	}
	r.give("small", "a", all...)
	r.Store().Ended("small", "a", jobs)
	most, sum := 0, 0
	for _, c := range r.made() {
		most, sum = max(most, len(c.jobs)), sum+len(c.jobs)
	}
	if sum != jobs || most < 100 || most > 200 {
		t.Errorf("%d jobs were called, at most %d together", sum, most)
	}
}

// TestPackFailsInPart: each job of a call ends as its own answer says, and one that is to be called again goes in
// another call.
func TestPackFailsInPart(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	r.give("match", "a", packedJob{N: 1}, packedJob{N: 2, Code: 422}, packedJob{N: 3, Code: 500}, packedJob{N: 4, Mute: true}, packedJob{N: 5, Code: 429})
	r.Eventually("five ends but one", func() bool {
		return len(r.Store().Letters("match", "a")) >= 3 && len(r.Store().Results("match", "a")) >= 1
	})
	reasons := map[string]string{}
	for _, m := range r.Store().Letters("match", "a") {
		reasons[m.Header.Get("Weir-Job-Id")] = m.Header.Get("Weir-Dead-Reason") + " " + m.Header.Get("Weir-Dead-Billed")
	}
	for id, want := range map[string]string{"job-2": "rejected no", "job-3": "unknown unknown", "job-4": "unknown yes"} {
		if reasons[id] != want {
			t.Errorf("%s became %q, want %q", id, reasons[id], want)
		}
	}
	r.Store().Ended("match", "a", 5)
	if results := byJob(r.Store().Results("match", "a")); results["job-1"] == nil || len(results) != 1 {
		t.Errorf("%d results", len(results))
	}
	calls := r.made()
	if len(calls) != 3 || len(calls[0].jobs) != 5 || len(calls[1].jobs) != 1 || calls[1].jobs[0].N != 5 {
		t.Errorf("calls: %+v", calls)
	}
}

// TestLargeJobGoesAlone: a job that is larger than a pack is called alone, in an array of one, and those before and
// behind it go together.
func TestLargeJobGoesAlone(t *testing.T) {
	t.Parallel()
	packs := &fakeapi.Packs{}
	packs.Release()
	r := weirtest.NewRig(t, fakeapi.Options{Script: packs.Script}, `
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 100}
    pack: {jobs: 10, bytes: 1KiB, wait: 500ms}
`)
	large := `{"n":3,"text":"` + strings.Repeat("x", 2<<10) + `"}`
	bodies := []string{`{"n":1}`, `{"n":2}`, large, `{"n":4}`, `{"n":5}`}
	jobs := make([]*nats.Msg, len(bodies))
	for i, body := range bodies {
		jobs[i] = producer.JobFor("pay", "k", body)
	}
	producer.FillTaken(t, r.NC, jobs)
	r.Store().Ended("pay", "k", len(bodies))
	var called []string
	for _, c := range packs.Calls() {
		called = append(called, c.Body)
	}
	if want := []string{`[{"n":1},{"n":2}]`, "[" + large + "]", `[{"n":4},{"n":5}]`}; !slices.Equal(called, want) {
		t.Errorf("the calls are %.40q", called)
	}
	if n := len(r.Store().Results("pay", "k")); n != len(bodies) {
		t.Errorf("%d results", n)
	}
}

// TestPackIsRepeatedAsItWas: a call without a known outcome is repeated under its key, with the same jobs in the same
// order, whatever came meanwhile.
func TestPackIsRepeatedAsItWas(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	r.give("order", "a", packedJob{N: 1}, packedJob{N: 2, Fail: 500}, packedJob{N: 3})
	r.Eventually("the first call", func() bool { return len(r.made()) > 0 })
	r.give("order", "a", packedJob{N: 4})
	r.Store().Ended("order", "a", 4)
	var same []packedCall
	for _, c := range r.made() {
		if len(c.jobs) == 3 {
			same = append(same, c)
		}
	}
	if len(same) != 2 || same[0].key != same[1].key || fmt.Sprint(same[0].jobs) != fmt.Sprint(same[1].jobs) || len(r.made()) != 3 {
		t.Errorf("calls: %+v", r.made())
	}
	if n := len(r.Store().Results("order", "a")); n != 4 {
		t.Errorf("%d results", n)
	}
}

// TestTooFewAnswers: if the answers cannot be told apart, each job of the pack is unknown.
func TestTooFewAnswers(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	r.give("order", "a", packedJob{N: 1}, packedJob{N: 2, Mute: true})
	r.Store().Ended("order", "a", 2)
	for _, m := range r.Store().Letters("order", "a") {
		if m.Header.Get("Weir-Dead-Reason") != "unknown" || !strings.Contains(m.Header.Get("Weir-Dead-Detail"), "1 answers to 2 jobs") {
			t.Errorf("%v", m.Header)
		}
	}
	if n := len(r.Store().Letters("order", "a")); n != 2 || len(r.made()) != 1 {
		t.Errorf("%d letters, %d calls", n, len(r.made()))
	}
}

// TestBadJobsOfPacks: the intake refuses a job that cannot stand beside others.
func TestBadJobsOfPacks(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	for body, api := range map[string]string{"no json": "order", "": "order", "1 2": "order", `{"m":1}`: "match", `{"n":{}}`: "match"} {
		if a := r.Producer().Submit("weir.jobs."+api+".a", []byte(body), nil); a.Error == nil || a.Error.Code != 400 {
			t.Errorf("%q is answered %+v", body, a)
		}
	}
}

// TestPackOfOtherRequests: jobs that ask for something else do not share a call.
func TestPackOfOtherRequests(t *testing.T) {
	t.Parallel()
	r := newPackRig(t)
	for n, path := range []string{"/x/order", "/x/order", "/y/order"} {
		r.Producer().Send("order", "a", nats.Header{"Nats-Msg-Id": {fmt.Sprint("job-", n+1)}, "Weir-Path": {path}}, fmt.Sprintf(`{"n":%d}`, n+1))
	}
	r.Store().Ended("order", "a", 3)
	calls := r.made()
	if len(calls) != 2 || len(calls[0].jobs) != 2 || len(calls[1].jobs) != 1 {
		t.Errorf("calls: %+v", calls)
	}
}

// TestPackOutlastsRefusedConnections: an api dies while it works on a call, refuses connections, and comes back. The
// call is repeated under its key, with all of its jobs.
func TestPackOutlastsRefusedConnections(t *testing.T) {
	t.Parallel()
	api, err := fakeapi.Start(fakeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	listen := func(at string) net.Listener {
		t.Helper()
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	listener := listen("127.0.0.1:0")
	at := listener.Addr().String()
	var mu sync.Mutex
	var calls []string
	var first sync.Once
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		calls = append(calls, r.Header.Get("Idempotency-Key")+" "+string(body))
		mu.Unlock()
		first.Do(func() {
			_ = listener.Close()
			panic(http.ErrAbortHandler) // closes the connection
		})
		_, _ = w.Write(body)
	})}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  order:
    url: http://%s/order
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 100/s, capacity: 100}
    retry: {attempts: 50, min: 20ms, max: 50ms}
    pack: {jobs: 3, wait: 10s}
`, at))
	for n := range 3 {
		r.Producer().Send("order", "a", nats.Header{"Nats-Msg-Id": {fmt.Sprint("job-", n)}}, fmt.Sprintf(`{"n":%d}`, n))
	}
	r.Eventually("a call without a connection", func() bool {
		return slices.ContainsFunc(r.Store().Ledger("order", "a"), func(c ledger.Record) bool { return !c.Sent })
	})
	again := listen(at)
	go func() { _ = server.Serve(again) }()
	r.Store().Ended("order", "a", 3)
	if n := len(r.Store().Results("order", "a")); n != 3 {
		t.Errorf("%d results, %d letters", n, len(r.Store().Letters("order", "a")))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("calls: %q", calls)
	}
}
