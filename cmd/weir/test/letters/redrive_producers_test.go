package letters

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/deadletter"
	"weir/ingest"
	"weir/ingest/await"
)

// TestRedriveSeesWhatProducersDid: after a 429 a producer sends the same job again, and it is called; its letter is
// then not redriven. A job with an id like that of another job's redrive, which producers could use before weir refused
// such ids, is a job of its own.
func TestRedriveSeesWhatProducersDid(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  pay: {url: %s, bucket: {rate: 20/s, capacity: 1}}
`)
	send := func(id string) producer.Answer {
		return r.Producer().Submit("weir.jobs.pay.k", []byte(id), map[string]string{"Nats-Msg-Id": id})
	}
	// overflow returns a job that was refused once, and never taken.
	overflow := func(name string) (id string, seq string) {
		n := 0
		r.Eventually("an overflow", func() bool {
			n++
			send(fmt.Sprintf("%s-before-%d", name, n))
			id = fmt.Sprintf("%s-%d", name, n)
			seq = strconv.FormatUint(send(id).Letter, 10)
			return seq != "0"
		})
		return id, seq
	}
	taken := func(prefix, id string) {
		r.Eventually("room for "+id, func() bool {
			return r.Producer().Submit(prefix+"pay.k", []byte(id), map[string]string{"Nats-Msg-Id": id}).Error == nil
		})
		r.Eventually("its call", func() bool { return r.Store().Waiting("pay") == 0 && r.Referee().PerBody()[id] == 1 })
	}
	again, letter := overflow("again")
	taken(ingest.SubjectPrefix, again)
	if did, code := r.CLI().Redrive(letter); code != cli.ExitRefused || did.Skipped[deadletter.SkipResubmitted] != 1 {
		t.Errorf("a job that was sent again: exit code %d, %+v", code, did)
	}
	x, letter := overflow("x")
	taken(ingest.RedrivePrefix, x+".r1") // without a check of the id: it is in the queue as it was
	if did, code := r.CLI().Redrive(letter); code != 0 || did.Redriven != 1 {
		t.Errorf("a job beside one that is called like its redrive: exit code %d, %+v", code, did)
	}
	r.Eventually("its call", func() bool { return r.Referee().PerBody()[x] == 1 })
	if a := send(x); !a.Duplicate {
		t.Errorf("a job that was refused, and redriven, is taken from its producer as well: %+v", a)
	}
	if calls := r.Referee().PerBody(); calls[again] != 1 || calls[x+".r1"] != 1 || calls[x] != 1 {
		t.Errorf("calls %v", calls)
	}
}

// TestRedriveOfARefusedRepeat: a job was taken and called, and its producer sends it again in a form that is refused.
// The letter of that refusal is not redriven, although the queue has forgotten the id by then.
func TestRedriveOfARefusedRepeat(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{
		KeepBody: 64,
	}, "dedupe: 2s\napis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 20}}\n")
	send := func(id, deadline string) producer.Answer {
		header := map[string]string{"Nats-Msg-Id": id}
		if deadline != "" {
			header["Weir-Deadline"] = deadline
		}
		return r.Producer().Submit("weir.jobs.pay.k", []byte(id), header)
	}
	send("paid", "1h")
	r.Eventually("its call and its record", func() bool {
		return r.Store().Waiting("pay") == 0 && r.Referee().PerBody()["paid"] == 1
	})
	refused := send("paid", "2026-01-02T15:04:05Z")
	if refused.Letter == 0 {
		t.Fatalf("a deadline that has passed: %+v", refused)
	}
	send("later", "")
	r.Eventually("the ids to be forgotten", func() bool { return !send("later", "").Duplicate })
	did, code := r.CLI().Redrive(strconv.FormatUint(refused.Letter, 10), "--drop-deadline")
	if code != cli.ExitRefused || did.Skipped[deadletter.SkipResubmitted] != 1 {
		t.Errorf("exit code %d, %+v", code, did)
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	if calls := r.Referee().PerBody(); calls["paid"] != 1 {
		t.Errorf("calls %v", calls)
	}
}

// TestRedriveOfTwoJobsOfOneID: two refused jobs have the same id, and the newer one is redriven first, as weir advises.
// The letter of the older one stays, because its job was never called.
func TestRedriveOfTwoJobsOfOneID(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 1}}\n")
	var older, newer uint64
	r.WhilePaused(func() {
		r.Producer().Submit("weir.jobs.pay.k", []byte("before"), nil)
		older = r.Producer().Submit("weir.jobs.pay.k", []byte("older"), map[string]string{"Nats-Msg-Id": "same"}).Letter
		newer = r.Producer().Submit("weir.jobs.pay.k", []byte("newer"), map[string]string{"Nats-Msg-Id": "same"}).Letter
	})
	r.Eventually("room", func() bool { return r.Store().Waiting("pay") == 0 })
	if older == 0 || newer <= older {
		t.Fatalf("the letters are %d and %d", older, newer)
	}
	if did, _ := r.CLI().Redrive(); did.Redriven != 1 || did.Skipped[deadletter.SkipSameID] != 1 {
		t.Fatalf("both: %+v", did)
	}
	r.Eventually("the call of the newer", func() bool {
		return r.Store().Waiting("pay") == 0 && r.Referee().PerBody()["newer"] == 1
	})
	if did, code := r.CLI().Redrive(); code != cli.ExitRefused || did.Skipped[deadletter.SkipResubmitted] != 1 {
		t.Errorf("the older: exit code %d, %+v", code, did)
	}
	if left := r.Store().Letters("pay", "k"); len(left) != 1 || left[0].Sequence != older ||
		r.Referee().PerBody()["older"] != 0 {
		t.Errorf("%d letters are left, calls %v", len(left), r.Referee().PerBody())
	}
}

// TestRedriveLooksAgain: what a producer sends while a redrive is under way is seen by it.
func TestRedriveLooksAgain(t *testing.T) {
	t.Parallel()
	refused := []string{"status=400"}
	api := weirtest.StartOrdered(t, map[string][]string{"a": refused, "b": refused, "c": refused})
	r := weirtest.RigOn(t, api,
		fmt.Sprintf("dedupe: 1s\napis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n", api.URL()))
	send := func(id string) producer.Answer {
		return r.Producer().Submit("weir.jobs.pay.k", []byte(id), map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + id})
	}
	for i, id := range []string{"a", "b", "c"} {
		send(id)
		r.Eventually("its letter", func() bool { return r.Store().Messages(deadletter.Stream) == i+1 })
	}
	type end struct {
		out  string
		code int
	}
	ended := make(chan end, 1)
	go func() {
		out, code := r.CLI().Run("dead", "redrive", "--yes", "--json", "--rate", "1/5s")
		ended <- end{out, code}
	}()
	r.Eventually("the first to be called again", func() bool { return r.Referee().PerBody()["a"] == 2 })
	r.Eventually("the last to be taken again", func() bool { return !send("c").Duplicate })
	r.Eventually("its call", func() bool { return r.Referee().PerBody()["c"] == 2 })
	var did deadletter.Tally
	e := await.Receive(t, "the end of the redrive", ended)
	if err := json.Unmarshal([]byte(e.out), &did); err != nil || did.Redriven != 2 ||
		did.Skipped[deadletter.SkipResubmitted] != 1 {
		t.Errorf("exit code %d, %s, %v", e.code, e.out, err)
	}
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("pay") == 0 })
	if calls := r.Referee().PerBody(); calls["a"] != 2 || calls["b"] != 2 || calls["c"] != 2 {
		t.Errorf("calls %v: the producer has sent c again, and the redrive has called it too", calls)
	}
}

// TestProducersForgeNoRedrive: a producer that writes a redrive's headers is refused with 400, a letter and an event.
// The job that it named is not called again, on an api that is not idempotent, and the next redrive still handles that
// job's letter correctly.
func TestProducersForgeNoRedrive(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, map[string][]string{"victim": {"status=400"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf("apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n", api.URL()))
	events, err := r.NC.SubscribeSync("weir.events.dead.pay.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ended", "victim"} {
		if a := r.Producer().Submit("weir.jobs.pay."+key, []byte(key), map[string]string{
			"Nats-Msg-Id": key,
			"Weir-Path":   "/" + key,
		}); a.Error != nil {
			t.Fatalf("%+v", a)
		}
		r.Store().Ended("pay", key, 1)
	}
	if _, err := events.NextMsg(weirtest.Patience); err != nil { // of the victim's letter
		t.Fatal(err)
	}
	forged := 0
	for _, key := range []string{"ended", "victim"} {
		for n := range 2 {
			header := resubmission(r, key, key, n+1)
			header["Weir-Path"] = "/" + key
			a := r.Producer().Submit("weir.jobs.pay."+key, []byte(key), header)
			if a.Error == nil || a.Error.Code != 400 || a.Error.ErrCode != 20400 || a.Job == key ||
				!strings.Contains(a.Error.Description, "Weir-Redrives") {
				t.Errorf("a forged redrive of %s: %+v", key, a)
			}
			forged++
			msg, err := events.NextMsg(weirtest.Patience)
			if err != nil || !strings.Contains(string(msg.Data), `"invalid"`) {
				t.Errorf("no event of a forged redrive: %v %s", err, msg.Data)
			}
		}
	}
	if a := r.Producer().Submit("weir.jobs.pay.ended", []byte("ended"), map[string]string{
		"Nats-Msg-Id": "ended.r3",
	}); a.Error == nil || a.Error.Code != 400 || a.Letter == 0 {
		t.Errorf("a redrive's id: %+v", a)
	}
	if n := r.Store().LetterCount(); n != 1+forged+1 {
		t.Errorf("%d letters, want the victim's and one of each forgery", n)
	}
	did, code := r.CLI().Redrive("--reason", "rejected")
	if code != 0 || did.Redriven != 1 || did.Settled != 0 {
		t.Errorf("the victim's redrive: exit code %d, %+v", code, did)
	}
	r.Eventually("the redriven call", func() bool { return len(r.Store().Results("pay", "victim")) == 1 })
	if calls := r.Referee().PerBody(); !maps.Equal(calls, map[string]int{"ended": 1, "victim": 2}) {
		t.Errorf("calls %v", calls)
	}
}
