package letters

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/secret"
	"weir/cmd/weir/internal/serve/clock"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// asked is an api that can be asked what became of its calls. It carries out a call of order paid-… and loses the
// answer. A call of lost-… fails before it is carried out. For odd-… the result stays unknown. The second call of an
// order succeeds.
type asked struct {
	mu    sync.Mutex // guards what follows
	calls map[string]int
	asks  map[string]int
}

func (a *asked) script(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
	order := q.Path[strings.LastIndexByte(q.Path, '/')+1:]
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.Method == "GET" {
		a.asks[order]++
		switch {
		case strings.HasPrefix(order, "paid"):
			return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: `{"state":"paid"}`, Bill: fakeapi.BillNever}
		case strings.HasPrefix(order, "lost"):
			return fakeapi.Behaviour{Status: http.StatusNotFound, Bill: fakeapi.BillNever}
		}
		return fakeapi.Behaviour{Answer: fakeapi.AnswerText, Text: `{"state":"who knows"}`, Bill: fakeapi.BillNever}
	}
	if a.calls[order]++; a.calls[order] > 1 {
		return fakeapi.Behaviour{}
	}
	if strings.HasPrefix(order, "lost") {
		return fakeapi.Behaviour{Fault: fakeapi.FaultResetHeader}
	}
	return fakeapi.Behaviour{Fault: fakeapi.FaultResetBody}
}

func (a *asked) times(what map[string]int, order string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return what[order]
}

const askedConfig = `
apis:
  pay:
    url: %s/v1
    price: 0.50
    timeout: 10s
    headers: {Authorization: "Bearer ${env:PAY_TOKEN}"}
    bucket: {rate: 100/s, capacity: 100}
    limits: [{name: account, quota: 1000/day, tz: UTC}, {name: one, in_flight: 1}, {name: spend, budget: 100/day, tz: UTC}]
    breaker: {failures: 0}
    inquiry:
      path: /orders/{json:/order}
      answers:
        - {status: 200, json: /state, values: [paid], means: processed}
        - {status: 404, means: not_processed}
      rate: 100/s
      %s
`

func askedRig(t *testing.T, more string) (*weirtest.Rig, *asked) {
	t.Helper()
	return askedRigOn(t, more, secret.Value{})
}

// askedRigOn is askedRig with its limits in Redis, if that has an address.
func askedRigOn(t *testing.T, more string, redis secret.Value) (*weirtest.Rig, *asked) {
	t.Helper()
	a := &asked{calls: map[string]int{}, asks: map[string]int{}}
	r := weirtest.ReadyRig(t, fakeapi.Options{Headers: []string{"Authorization"}, Script: a.script}, "")
	r.YAML, r.Redis, r.Clock = fmt.Sprintf(askedConfig, r.API.URL(), more), redis, clock.New()
	r.Start()
	t.Cleanup(r.Stop)
	return r, a
}

// TestReconcile: what the api says was processed becomes a result, what it says was not is called again, and the rest stays; each job
// has one end, the api was asked with weir's credentials, and the ledger tells of it.
func TestReconcile(t *testing.T) {
	t.Parallel()
	testReconcile(t, secret.Value{})
}

// TestReconcileWithRedis does the same where slots come from Redis.
func TestReconcileWithRedis(t *testing.T) {
	t.Parallel()
	testReconcile(t, weirtest.RedisSetting(t, "redis://"+servers.StartRedis(t).Addr))
}

func testReconcile(t *testing.T, redis secret.Value) {
	t.Helper()
	r, a := askedRigOn(t, "after: 0s", redis)
	ends, err := r.NC.SubscribeSync("_INBOX.mine.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"paid-1", "paid-2", "lost-1", "odd-1"} {
		r.Producer().Order("k", order)
	}
	r.Store().Ended("pay", "k", 4)
	for _, letter := range r.Store().Letters("pay", "k") {
		for _, name := range []string{"Weir-Dead-Called-At", "Weir-Dead-Wrote-At", "Weir-Dead-Sent-Bytes", "Weir-Dead-Connection", "Weir-Dead-Ended-At", "Weir-Dead-Target"} {
			if letter.Header.Get(name) == "" {
				t.Errorf("a letter says nothing of %s: %v", name, letter.Header)
			}
		}
		if by := letter.Header.Get("Weir-Dead-Cut-By"); by != "reset" {
			t.Errorf("its call was cut by %q", by)
		}
	}
	out, _ := r.CLI().Run("dead", "show", fmt.Sprint(r.Store().Letters("pay", "k")[0].Sequence))
	for _, text := range []string{"last call  ", "over a new connection", "broke the connection off"} {
		if !strings.Contains(out, text) {
			t.Errorf("dead show does not say %q:\n%s", text, out)
		}
	}
	if out, code := r.CLI().Run("dead", "reconcile", "--dry-run", "--json"); code != 0 || !strings.Contains(out, `"letters":4`) || len(r.API.All()) != 4 {
		t.Errorf("a dry run said %s, after %d calls", out, len(r.API.All()))
	}
	r.Clock.Set(time.Minute) // the letters are as old as the api's timeout

	did, code := r.CLI().Reconcile("--api", "pay")
	if code != 0 || did.Done != 2 || did.Redriven != 1 || did.Stays != 1 || did.Letters != 4 {
		t.Fatalf("exit code %d, %+v", code, did)
	}
	r.Eventually("a result of each but the odd one", func() bool {
		return len(r.Store().Results("pay", "k")) == 3 && len(r.Store().Letters("pay", "k")) == 1
	})
	found := 0
	for _, msg := range r.Store().Results("pay", "k") {
		if msg.Header.Get("Weir-Found-By") != "inquiry" {
			continue
		}
		found++
		if msg.Header.Get("Weir-Outcome") != "done" || string(msg.Data) != `{"state":"paid"}` || msg.Header.Get("Weir-Price") != "0.50" ||
			msg.Header.Get("Weir-Called-At") == "" || !strings.HasPrefix(msg.Header.Get("Weir-Job-Id"), "paid-") {
			t.Errorf("a result that was found is %v %q", msg.Header, msg.Data)
		}
	}
	if found != 2 || a.times(a.calls, "paid-1") != 1 || a.times(a.calls, "lost-1") != 2 || a.times(a.calls, "odd-1") != 1 {
		t.Errorf("%d results were found, and the calls are %v", found, a.calls)
	}
	for _, arrival := range r.API.All() {
		if arrival.Header("Authorization") != "Bearer secret-token" {
			t.Errorf("%s %s came without credentials", arrival.Method, arrival.Path)
		}
	}
	inquiries := map[string]ledger.Record{}
	for _, c := range r.Store().Ledger("pay", "k") {
		if c.Inquiry != "" {
			inquiries[c.Job] = c
		}
	}
	if c := inquiries["paid-1"]; c.Inquiry != "processed" || c.Billed != "yes" || c.Price != "0.00" || fmt.Sprint(c.Costs) != "[1 1 0]" || !c.Final {
		t.Errorf("the record of a job that was found processed is %+v", c)
	}
	if c := inquiries["lost-1"]; c.Inquiry != "not_processed" || c.Billed != "no" {
		t.Errorf("the record of a job that was found not processed is %+v", c)
	}
	told := map[string]int{}
	for range 7 { // a letter each, and three results
		msg, err := ends.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		told[msg.Header.Get("Weir-Outcome")]++
	}
	if told["unknown"] != 4 || told["done"] != 3 {
		t.Errorf("the waiting client was told %v", told)
	}
	if out, code := r.CLI().Run("verify", "--json"); code != 0 {
		t.Errorf("verify says %s", out)
	}
	if did, code := r.CLI().Reconcile("--reason", "unknown"); code != 0 || did.Stays != 1 || did.Letters != 1 {
		t.Errorf("asked again: exit code %d, %+v", code, did)
	}
}

// TestReconcileRefusals: a letter is not redriven if it is too young. No inquiry is made about a call to another url,
// while the api is paused, or if the api's configuration does not say how to ask.
func TestReconcileRefusals(t *testing.T) {
	t.Parallel()
	r, a := askedRig(t, "after: 1h")
	r.Producer().Order("k", "lost-1")
	r.Store().Ended("pay", "k", 1)
	did, code := r.CLI().Reconcile()
	if code != 0 || did.Stays != 1 || !strings.Contains(did.Each[0].Why, "the api may process late") || did.Each[0].Finding != "not_processed" {
		t.Errorf("a young letter: exit code %d, %+v", code, did)
	}
	r.CLI().Run("pause", "pay")
	if did, _ := r.CLI().Reconcile(); did.Stays != 1 || !strings.Contains(did.Each[0].Why, "paused") {
		t.Errorf("while the api is paused: %+v", did)
	}
	r.CLI().Run("resume", "pay")
	r.Stop()
	r.YAML = strings.Replace(r.YAML, "/v1\n", "/v2\n", 1)
	r.Start()
	if did, _ := r.CLI().Reconcile(); did.Stays != 1 || !strings.Contains(did.Each[0].Why, "url is another") {
		t.Errorf("where the url is another: %+v", did)
	}
	if n := a.times(a.asks, "lost-1"); n != 1 {
		t.Errorf("the api was asked %d times", n)
	}
	r.Stop()
	r.YAML = r.YAML[:strings.Index(r.YAML, "    inquiry:")]
	r.Start()
	if _, code := r.CLI().Reconcile(); code != cli.ExitRefused {
		t.Errorf("without an inquiry: exit code %d", code)
	}
	if _, code := r.CLI().Run("dead", "reconcile", "--reason", "overflow"); code != cli.ExitUsage {
		t.Errorf("of another reason: exit code %d", code)
	}
}

// TestReconcileSurvivesADeath: a result that was stored before the death is found, and no second inquiry is made. A job
// that was redriven before the death is not redriven twice.
func TestReconcileSurvivesADeath(t *testing.T) {
	t.Parallel()
	r, a := askedRig(t, "after: 0s")
	r.Producer().Order("k", "paid-1")
	r.Store().Ended("pay", "k", 1)
	letter := r.Store().Letters("pay", "k")[0]
	if did, _ := r.CLI().Reconcile(); did.Done != 1 {
		t.Fatalf("%+v", did)
	}
	// the letter stands again, as where the process died before it could delete it
	msg := &nats.Msg{Subject: letter.Subject, Header: nats.Header{}, Data: letter.Data}
	for name, values := range letter.Header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = values
		}
	}
	msg.Header.Set("Nats-Msg-Id", letter.Header.Get("Nats-Msg-Id"))
	r.PurgeMemoryOfLetters()
	if _, err := r.Operators().PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	asks := a.times(a.asks, "paid-1")
	if did, _ := r.CLI().Reconcile(); did.Done != 1 || !strings.Contains(did.Each[0].Why, "stands already") {
		t.Errorf("after a death: %+v", did)
	}
	if len(r.Store().Results("pay", "k")) != 1 || len(r.Store().Letters("pay", "k")) != 0 || a.times(a.asks, "paid-1") != asks {
		t.Errorf("%d results and %d letters; asked %d times", len(r.Store().Results("pay", "k")), len(r.Store().Letters("pay", "k")), a.times(a.asks, "paid-1"))
	}
}

// TestTwoOperatorsReconcile: two at once end each letter once, and a redrive of the same letters waits its turn.
func TestTwoOperatorsReconcile(t *testing.T) {
	t.Parallel()
	r, a := askedRig(t, "after: 0s")
	orders := []string{"paid-1", "lost-1", "paid-2", "lost-2", "paid-3", "lost-3"}
	for _, order := range orders {
		r.Producer().Order("k", order)
	}
	r.Store().Ended("pay", "k", len(orders))
	r.Clock.Set(time.Minute)
	var both [2]program.Reconciled
	var group sync.WaitGroup
	for i := range both {
		group.Go(func() {
			out, code := r.CLI().Run("dead", "reconcile", "--yes", "--json")
			if code != 0 && code != cli.ExitNotFound { // the other one may have ended all letters before
				t.Errorf("operator %d ends with %d", i, code)
			}
			_ = json.Unmarshal([]byte(out), &both[i]) // checked below
		})
	}
	await.Return(t, "both operators", group.Wait)
	if both[0].Done+both[1].Done != 3 || both[0].Redriven+both[1].Redriven != 3 {
		t.Errorf("together they ended %+v and %+v", both[0], both[1])
	}
	r.Eventually("the ends", func() bool {
		return len(r.Store().Results("pay", "k")) == len(orders) && len(r.Store().Letters("pay", "k")) == 0
	})
	for _, order := range orders {
		want := 1
		if strings.HasPrefix(order, "lost") {
			want = 2
		}
		if n := a.times(a.calls, order); n != want {
			t.Errorf("%s was called %d times", order, n)
		}
	}
}

// TestInquiryByItself: weir makes inquiries without an operator, when the time has come and not before, and a bounded
// number of times. After a restart it continues with the inquiries that it has made before.
func TestInquiryByItself(t *testing.T) {
	t.Parallel()
	r, a := askedRig(t, "after: 1s\n      auto: true\n      tries: 2")
	for _, order := range []string{"paid-1", "lost-1", "odd-1"} {
		r.Producer().Order("k", order)
	}
	r.Clock.Set(15 * time.Second) // the first time to ask has come
	r.Eventually("results", func() bool {
		return len(r.Store().Results("pay", "k")) == 2 && len(r.Store().Letters("pay", "k")) == 1
	})
	if a.times(a.calls, "paid-1") != 1 || a.times(a.calls, "lost-1") != 2 {
		t.Errorf("the calls are %v", a.calls)
	}
	r.Stop()
	r.Start()
	r.Clock.Set(time.Hour)
	r.Eventually("the second inquiry about the odd one", func() bool { return a.times(a.asks, "odd-1") == 2 })
	r.Clock.Set(24 * time.Hour)
	r.Producer().Order("k", "paid-2") // the look that finds its letter has passed the older one
	r.Eventually("a look at the letters", func() bool {
		return len(r.Store().Results("pay", "k")) == 3 && len(r.Store().Letters("pay", "k")) == 1
	})
	if n := a.times(a.asks, "odd-1"); n != 2 || len(r.Store().Letters("pay", "k")) != 1 {
		t.Errorf("asked %d times, %d letters", n, len(r.Store().Letters("pay", "k")))
	}
}

// TestInquiryAfterADeath: a call that was lost with the process that made it is asked about as well, where that went; what was meant for
// another url is not.
func TestInquiryAfterADeath(t *testing.T) {
	t.Parallel()
	r, a := askedRig(t, "after: 0s\n      auto: true")
	r.Stop()
	c, err := config.Parse([]byte(r.YAML), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	target := worker.DispatchAPI(&c.APIs[0], c).Target()
	a.calls["lost-9"] = 1    // the call that was lost
	r.Clock.Set(time.Minute) // the letters to come are as old as the api's timeout
	r.Offline(func(o *store.Offline) {
		for order, at := range map[string]string{"paid-9": target, "lost-9": target, "paid-8": "elsewhere"} {
			p := queue.PartitionOf("k", 4)
			header := nats.Header{"Weir-Job-Id": {order}, "Weir-Path": {"/pay/" + order}}
			seq := o.Put(store.QueueName("pay", p, "j", "k"), "k/"+order, map[string]string{"order": order}, header)
			accepted := bucket.MicrosOf(o.StoredAt(queue.StreamName("pay", p), seq))
			o.Put(store.QueueName("pay", p, "i", order), "", []queue.Intent{{Seq: seq, Call: 1, Accepted: accepted, Timeout: time.Second, Price: 500_000, Target: at}}, nil)
		}
	})
	r.Start()
	r.Eventually("two results and a letter", func() bool {
		return len(r.Store().Results("pay", "k")) == 2 && len(r.Store().Letters("pay", "k")) == 1
	})
	if letter := r.Store().Letters("pay", "k")[0]; letter.Header.Get("Weir-Job-Id") != "paid-8" || letter.Header.Get("Weir-Dead-Cut-By") != "weir" {
		t.Errorf("the letter that is left is %v", letter.Header)
	}
	if a.times(a.calls, "paid-9") != 0 || a.times(a.calls, "lost-9") != 2 || a.times(a.asks, "paid-8") != 0 {
		t.Errorf("calls %v, asks %v", a.calls, a.asks)
	}
}
