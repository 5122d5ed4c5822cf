package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
)

// TestEveryRefusalSaysWhenToComeBack: a bucket that is full while its calls run, one that an operator has paused, and a job
// that would wait too long: each 429 and each event has a retry_after_ms.
func TestEveryRefusalSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}) // until then no call ends
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(ctx context.Context, _ *fakeapi.Request) fakeapi.Behaviour {
		select {
		case <-asked:
		case <-ctx.Done():
		}
		return fakeapi.Behaviour{}
	}}, `
apis:
  full: {url: %[1]s, bucket: {rate: 100/s, burst: 10, capacity: 2}}
  long: {url: %[1]s, bucket: {rate: 1/m, capacity: 20, max_wait: 2m}}
`)
	defer close(asked)
	events, err := r.NC.SubscribeSync("weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	var refused []map[string]any
	for _, api := range []string{"full", "long", "full"} {
		var subjects []string
		for range 8 {
			subjects = append(subjects, "weir.jobs."+api+".k")
		}
		these := r.Producer().RefusedMany(subjects)
		if len(these) < 3 {
			t.Errorf("%s refused %d of 8 jobs", api, len(these))
		}
		refused = append(refused, these...)
		if _, code := r.CLI().Run("pause", "full", "k"); code != 0 {
			t.Fatal("the key could not be paused")
		}
	}
	for _, a := range refused {
		if ms, ok := a["retry_after_ms"].(float64); !ok || ms < 1 {
			t.Errorf("refused without a word of when to come back: %v", a)
		}
		msg, err := events.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			Data struct {
				Retry int64 `json:"retry_after_ms"`
			}
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Data.Retry < 1 {
			t.Errorf("%s: %v", msg.Data, err)
		}
	}
}

// TestLateUnderSharedLimits: max_wait and deadlines are judged by what all keys share, too: a rate with a job of each key
// before, and a budget that is spent until the month ends.
func TestLateUnderSharedLimits(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  turns:
    url: %[1]s
    bucket: {rate: 100/s, capacity: 20, max_wait: 20s}
    limits: [{name: account, rate: 0.2/s}]
  paid:
    url: %[1]s
    price: 1.00
    bucket: {rate: 100/s, capacity: 2000}
    limits: [{name: spend, budget: 1.00/month, tz: `+machine.Noon()+`, on_exhausted: hold}]
`)
	var subjects []string
	for k := range 12 {
		subjects = append(subjects, fmt.Sprint("weir.jobs.turns.k", k))
	}
	if refused := r.Producer().RefusedMany(subjects); len(refused) < 4 || len(refused) > 8 {
		t.Errorf("%d of 12 keys were refused: at one call in 5s 5 may wait for less than 20s", len(refused))
	}
	r.Producer().Submit("weir.jobs.paid.k", nil, nil)
	soon := map[string]string{"Weir-Deadline": "1m"}
	r.Eventually("a refusal of what the budget does not pay for in time", func() bool {
		a := r.Producer().Submit("weir.jobs.paid.other", nil, soon)
		return a.Error != nil && a.Error.ErrCode == 20429
	})
	r.Eventually("a receipt that says when the budget pays again", func() bool {
		a := r.Producer().Submit("weir.jobs.paid.other", nil, nil)
		return a.Error == nil && a.ETAms != nil && *a.ETAms > time.Minute.Milliseconds()
	})
}

// TestRefusedTogetherComeBackOneByOne: sixty producers meet a full bucket at once. Each gets another time to retry,
// also in the description, and the times are about as far apart as places in the bucket become free. A producer that
// asks too early gets the same time again.
func TestRefusedTogetherComeBackOneByOne(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  slow: {url: %[1]s, jitter: 0s, bucket: {rate: 1/30s, capacity: 2}}
`)
	var subjects []string
	for range 63 {
		subjects = append(subjects, "weir.jobs.slow.k")
	}
	refused := r.Producer().RefusedMany(subjects)
	if len(refused) < 58 {
		t.Fatalf("only %d of 63 jobs were refused", len(refused))
	}
	var told []float64
	for _, a := range refused {
		ms, _ := a["retry_after_ms"].(float64)
		told = append(told, ms)
		of, _ := a["error"].(map[string]any)
		if text, _ := of["description"].(string); !strings.Contains(text, "holds 2 of 2; try again in ") {
			t.Errorf("refused with %q", text)
		}
	}
	slices.Sort(told)
	for i, ms := range told {
		if ms < float64(i)*27_000-10_000 { // of ten seconds it may have refused some later than others
			t.Fatalf("number %d is told to come back in %.0f ms, though the bucket lets one in every 30 seconds: %v", i+1, ms, told)
		}
	}
	r.CLI().Run("pause", "slow", "k") // nothing leaves the bucket meanwhile
	for range 2 {
		r.Producer().Submit("weir.jobs.slow.k", nil, nil) // in the place of what has been called
	}
	header := map[string]string{"Nats-Msg-Id": "mine"}
	first := r.Producer().Submit("weir.jobs.slow.k", nil, header)
	again := r.Producer().Submit("weir.jobs.slow.k", nil, header)
	if first.RetryMS < 1_500_000 || again.RetryMS > first.RetryMS || again.RetryMS < first.RetryMS-60_000 {
		t.Errorf("told to come back in %d ms, and, asked at once again, in %d ms", first.RetryMS, again.RetryMS)
	}
}
