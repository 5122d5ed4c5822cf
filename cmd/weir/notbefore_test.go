package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/control"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

const notBeforeYAML = `
apis:
  pay:
    url: %s
    bucket: {rate: 20/s, capacity: 6, in_flight: 1, max_wait: 3s}
`

// sendNotBefore submits a job that is not to be called before a time, under its name as the last part of the path.
func (r *rig) sendNotBefore(key, name, notBefore string, more ...string) answer {
	r.t.Helper()
	h := map[string]string{"Nats-Msg-Id": name, "Weir-Path": "/" + name}
	if notBefore != "" {
		h[ingest.HeaderNotBefore] = notBefore
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return r.submit("weir.jobs.pay."+key, []byte(name), h)
}

func (a answer) eta() time.Duration {
	if a.ETAms == nil {
		return -1
	}
	return time.Duration(*a.ETAms) * time.Millisecond
}

// TestNotBefore: a job waits in its bucket until its time has come, and nobody waits behind it, over a restart. Its receipt, a copy, the
// capacity, a cancellation and what is shown of its key know of it.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, nil)
	r := rigOn(t, api, fmt.Sprintf(notBeforeYAML, api.URL()))
	due := time.Now().Add(time.Hour)
	at := func(after time.Duration) string { return due.Add(after).Format(time.RFC3339Nano) }

	third := r.sendNotBefore("k", "third", at(500*time.Millisecond))
	second := r.sendNotBefore("k", "second", at(0), "Weir-Deadline", "1h")
	year := r.sendNotBefore("k", "year", "8784h")
	gone := r.sendNotBefore("k", "gone", "100h")
	for n, name := range []string{"second", "third", "gone", "year"} { // a receipt may be sooner than its owner has read those before
		r.eventually(fmt.Sprintf("%s has position %d", name, n+1), func() bool {
			a := r.sendNotBefore("k", name, "1h")
			return a.Duplicate && a.Position == n+1
		})
	}
	for _, c := range []struct {
		answer
		want time.Duration
	}{{second, time.Until(due)}, {third, time.Until(due)}, {year, ingest.MostNotBefore - time.Minute}, {gone, 99 * time.Hour}} {
		if c.Error != nil || c.eta() < c.want {
			t.Errorf("a receipt says that its job is called in %s, before its time: %+v", c.eta(), c.answer)
		}
	}
	first := r.sendNotBefore("k", "first", "")
	if first.Position != 1 || first.eta() > time.Second {
		t.Errorf("a job behind jobs that wait for their time: position %d, in %s", first.Position, first.eta())
	}
	if all := r.awaitCalls(1); string(all[0].Body) != "first" {
		t.Fatalf("called first: %s", all[0].Body)
	}
	r.eventually("four jobs wait", func() bool { return r.waiting("pay") == 4 })
	if again := r.sendNotBefore("k", "year", "8784h"); !again.Duplicate || again.Seq != year.Seq || again.Position != 4 || again.eta() < 365*24*time.Hour {
		t.Errorf("a copy: %+v", again)
	}
	r.refuseNotBefore()
	r.fillNotBefore()
	r.seeNotBefore(due)
	if said, code := r.command("cancel", "pay", "gone"); code != 0 {
		t.Fatalf("cancel: %s", said)
	}
	due = time.Now().Add(2 * time.Second)
	r.sendNotBefore("k", "later", at(500*time.Millisecond))
	r.sendNotBefore("k", "sooner", at(0))
	inTime := time.Now().Before(due) // else the machine stood still, and one may be called before the other is there
	r.stop()
	r.start()
	for _, a := range r.awaitCalls(3) {
		name, came := string(a.Body), api.Started().Add(time.Duration(a.At))
		if name != "first" && came.Before(due) || name == "later" && came.Before(due.Add(500*time.Millisecond)) {
			t.Errorf("%s was called %s before its time", name, due.Sub(came))
		}
	}
	if all := api.All(); string(all[1].Body)+" "+string(all[2].Body) != "sooner later" && inTime {
		t.Errorf("called second and third: %s, %s", all[1].Body, all[2].Body)
	}
	if letters := r.letters("pay", "k"); len(letters) != 1 || letters[0].Header.Get("Weir-Job-Id") != "gone" || letters[0].Header.Get(ingest.HeaderNotBefore) != "100h" {
		t.Errorf("%d letters", len(letters))
	}
	r.eventually("three jobs of an hour and later and the six of the full bucket wait", func() bool { return r.waiting("pay") == 9 })
}

// refuseNotBefore hands in jobs that could never be called.
func (r *rig) refuseNotBefore() {
	r.t.Helper()
	for notBefore, why := range map[string]string{"2h": "could never be called", "8784h1s": "366 days", "-1s": "negative", "tomorrow": "RFC 3339"} {
		a := r.sendNotBefore("refused", "never", notBefore, "Weir-Deadline", "1h")
		if a.Error == nil || a.Error.ErrCode != 20400 || a.Letter == 0 || !strings.Contains(a.Error.Description, why) || !strings.Contains(a.Error.Description, ingest.HeaderNotBefore) {
			r.t.Errorf("not before %s: %+v", notBefore, a.Error)
		}
	}
}

// fillNotBefore fills a bucket with jobs that are not to be called for an hour, and hands in one more.
func (r *rig) fillNotBefore() {
	r.t.Helper()
	for n := range 6 {
		if a := r.sendNotBefore("full", fmt.Sprint("hour-", n), "1h"); a.Error != nil {
			r.t.Fatalf("%d: %+v", n, a.Error)
		}
	}
	msg, err := r.nc.Request("weir.jobs.pay.full", nil, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	var a struct {
		Error *struct{ Code int }
		Retry int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(msg.Data, &a); err != nil || a.Error == nil || a.Error.Code != 429 || a.Retry < 3_500_000 {
		r.t.Errorf("a bucket full of jobs of the next hour answers %s", msg.Data)
	}
}

// seeNotBefore looks at what is shown of a key whose jobs wait for their time.
func (r *rig) seeNotBefore(due time.Time) {
	r.t.Helper()
	var shown control.KeyShown
	said, code := r.command("show", "pay", "k", "--json")
	if err := json.Unmarshal([]byte(said), &shown); err != nil || code != 0 {
		r.t.Fatalf("%d %s", code, said)
	}
	if shown.Waits.For != schedule.WaitNotBefore || shown.Waits.Until == nil || shown.Waits.Until.Sub(due).Abs() > time.Millisecond || shown.WaitMS > 1000 {
		r.t.Errorf("the key waits for %+v, a job that came now %d ms", shown.Waits, shown.WaitMS)
	}
	var order []string
	for _, j := range shown.Next {
		order = append(order, j.Job+" "+string(j.Phase))
	}
	if got := strings.Join(order, ", "); got != "second not_before, third not_before, gone not_before, year not_before" {
		r.t.Errorf("shown: %s", got)
	}
	if said, _ := r.command("show", "pay", "k"); !strings.Contains(said, "the time that its jobs asked for until") {
		r.t.Errorf("shown: %s", said)
	}
}
