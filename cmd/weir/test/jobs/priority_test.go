package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// sendUrgent submits a job with a priority, "" for none. Its name begins with the priority.
func sendUrgent(r *weirtest.Rig, key, priority, name string) producer.Answer {
	r.T.Helper()
	h := map[string]string{"Nats-Msg-Id": name, "Weir-Path": "/" + key}
	if priority != "" {
		h[ingest.HeaderPriority] = priority
	}
	return r.Producer().Submit("weir.jobs.pay."+key, []byte(name), h)
}

// kinds counts calls by what the names of their jobs begin with, up to the dash, and checks that those of one kind and
// key are in the order of their numbers.
func kinds(t *testing.T, arrivals []fakeapi.Arrival) map[string]int {
	t.Helper()
	counts, last := map[string]int{}, map[string]int{}
	for _, a := range arrivals {
		kind, rest, _ := strings.Cut(string(a.Body), "-")
		var number int
		if _, err := fmt.Sscan(rest, &number); err != nil {
			t.Fatalf("the job %s has no number: %v", a.Body, err)
		}
		if lane := kind + " of " + a.Key; number < last[lane] {
			t.Errorf("%s was called after number %d", a.Body, last[lane])
		} else {
			last[lane] = number
		}
		counts[kind]++
	}
	return counts
}

// TestPrioritiesOfAKey: high jobs that came last pass a backlog, and while all wait calls start by the weights. Within
// a priority they start in the order of acceptance. Receipts and displays say so.
func TestPrioritiesOfAKey(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 10/s, capacity: 200} # between two calls a slow machine makes a job ready
`, api.URL()))
	const lows, normals, highs = 12, 16, 40
	r.WhilePaused(func() {
		for n := range lows {
			sendUrgent(r, "k", "low", fmt.Sprintf("low-%d", n))
		}
		for n := range normals {
			sendUrgent(r, "k", []string{"", "normal"}[n%2], fmt.Sprintf("normal-%d", n))
		}
		if a := sendUrgent(r, "k", "high", "high-0"); a.Error != nil || a.Position != 1 {
			t.Errorf("the first high job: %+v", a)
		}
		for n := 1; n < highs; n++ {
			sendUrgent(r, "k", "high", fmt.Sprintf("high-%d", n))
		}
		r.Eventually("all jobs wait", func() bool { return r.Store().Waiting("pay") == lows+normals+highs })
		var shown admin.KeyShown
		if err := json.Unmarshal([]byte(r.CLI().Must("show", "pay", "k", "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		if shown.Jobs["high"] != highs || shown.Jobs["normal"] != normals || shown.Jobs["low"] != lows || shown.Next[0].Priority != "high" || shown.Next[0].Job != "high-0" {
			t.Errorf("weir show lists %v, and first %+v", shown.Jobs, shown.Next[0])
		}
		if text := r.CLI().Must("show", "pay", "k"); !strings.Contains(text, "40 high, 16 normal, 12 low") || !strings.Contains(text, "PRIORITY") {
			t.Errorf("weir show prints:\n%s", text)
		}
		if text := r.CLI().Must("job", "low-11"); !strings.Contains(text, "with priority low") {
			t.Errorf("weir job prints:\n%s", text)
		}
	})
	const span = 42 // in which all wait: 32 high, 8 normal, 2 low
	all := r.AwaitCalls(span)
	kinds(t, all)
	got := kinds(t, all[:span])
	for kind, want := range map[string]int{"high": 32, "normal": 8, "low": 2} {
		if n := got[kind]; n < want-1 || n > want+2 {
			t.Errorf("of the first %d calls %d were of %s jobs, want about %d", span, n, kind, want)
		}
	}
}

// TestPrioritiesAtASharedLimit: the high jobs of one key pass the low ones of many keys, at a limit that all share.
func TestPrioritiesAtASharedLimit(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
apis:
  pay:
    url: %s
    bucket: {rate: 100/s, capacity: 100}
    limits: [{name: account, rate: 4/s}] # between two calls a slow machine makes a job of the key ready
`, api.URL()))
	const keys, each, highs = 20, 3, 16
	r.WhilePaused(func() {
		for n := range keys * each {
			sendUrgent(r, fmt.Sprintf("bulk%d", n%keys), "low", fmt.Sprintf("low-%d", n))
		}
		for n := range highs {
			sendUrgent(r, "bulk0", "high", fmt.Sprintf("high-%d", n))
		}
		r.Eventually("all jobs wait", func() bool { return r.Store().Waiting("pay") == keys*each+highs })
	})
	const span = highs + 3
	all := r.AwaitCalls(span)
	kinds(t, all)
	if got := kinds(t, all[:span]); got["high"] < highs-1 || got["low"] < 2 {
		t.Errorf("of the first %d calls %d were of the %d high jobs", span, got["high"], highs)
	}
}

// TestMaxWaitOfPriorities: behind a backlog of low jobs a further low one is refused by max_wait or by its deadline,
// and a high one is accepted.
func TestMaxWaitOfPriorities(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay: {url: %s, bucket: {rate: 1/20s, capacity: 100, max_wait: 10m}}\n")
	submit := func(priority, deadline string) producer.Answer {
		t.Helper()
		h := map[string]string{ingest.HeaderPriority: priority}
		if deadline != "" {
			h[ingest.HeaderDeadline] = deadline
		}
		return r.Producer().Submit("weir.jobs.pay.k", nil, h)
	}
	accepted := 0
	for ; submit("low", "").Error == nil; accepted++ {
		if accepted == 50 {
			t.Fatal("50 jobs are accepted, though the last would wait for more than a quarter of an hour")
		}
	}
	if accepted < 30 {
		t.Errorf("only %d low jobs are accepted", accepted)
	}
	r.Eventually("the owner to have read all that wait", func() bool {
		var shown admin.KeyShown
		return json.Unmarshal([]byte(r.CLI().Must("show", "pay", "k", "--json")), &shown) == nil && shown.Jobs["low"] >= accepted-1
	})
	for n, deadline := range []string{"", "5m"} {
		if a := submit("high", deadline); a.Error != nil || a.ETAms == nil || *a.ETAms > time.Minute.Milliseconds() || a.Position > n+2 {
			t.Errorf("a high job with the deadline %q is answered %+v", deadline, a)
		}
		if a := submit("low", deadline); a.Error == nil || a.Error.ErrCode != 20429 {
			t.Errorf("a low job with the deadline %q is answered %+v", deadline, a)
		}
	}
}

// TestPriorityThatIsNone: a priority that weir does not know is refused, with a letter.
func TestPriorityThatIsNone(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  pay: {url: %s, bucket: {rate: 10/s, capacity: 10}}\n")
	for _, wrong := range []string{"urgent", "High", "0"} {
		if a := sendUrgent(r, "k", wrong, "job-"+wrong); a.Error == nil || a.Error.Code != 400 || a.Letter == 0 || !strings.Contains(a.Error.Description, "Weir-Priority: it says high, normal or low") {
			t.Errorf("%s: %+v", wrong, a)
		}
	}
}

// TestPrioritiesAfterAKill: after a kill -9 jobs that wait still have their priorities, and jobs that come have theirs.
func TestPrioritiesAfterAKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	r := weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, idempotency: {header: Idempotency-Key}, bucket: {rate: 20/s, capacity: 500}}
`)
	submit := func(priority, name string) {
		t.Helper()
		msg := &nats.Msg{Subject: "weir.jobs.pay.k", Data: []byte(name), Header: nats.Header{
			"Nats-Msg-Id": {name}, "Weir-Path": {"/k"}, ingest.HeaderPriority: {priority},
		}}
		answer, err := r.NC.RequestMsg(msg, weirtest.Patience)
		var a producer.Answer
		if err == nil {
			err = json.Unmarshal(answer.Data, &a)
		}
		if err != nil || a.Error != nil {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
	}
	const lows, highs = 60, 6
	for n := range lows {
		submit("low", fmt.Sprintf("low-%d", n))
	}
	for n := range highs {
		submit("high", fmt.Sprintf("high-%d", n))
	}
	r.Proc.Kill()
	before := len(r.API.All())
	r.Start()
	for n := highs; n < 2*highs; n++ {
		submit("high", fmt.Sprintf("high-%d", n))
	}
	r.AwaitEmpty()
	all := r.API.All()
	last := 0
	for i, a := range all {
		if strings.HasPrefix(string(a.Body), "high-") {
			last = i
		}
	}
	// Those that waited at the kill, those that came, and the few low ones that had their turn meanwhile.
	if most := before + 2*highs + int(5*time.Second/(50*time.Millisecond))/16 + 8; last > most {
		t.Errorf("the last high job had call %d, %d calls were made before the kill", last+1, before)
	}
	done := map[string]bool{}
	for _, a := range all {
		done[string(a.Body)] = true
	}
	if len(done) != lows+2*highs {
		t.Errorf("%d of %d jobs were called", len(done), lows+2*highs)
	}
}
