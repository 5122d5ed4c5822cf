package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go"
)

// TestBurst is weir's main job: a burst beyond the bucket. Jobs that fit are called once each, in order, never faster
// than the rate. A job that does not fit is a letter and an event, and its producer gets the refusal.
func TestBurst(t *testing.T) {
	t.Parallel()
	const jobs, capacity, rate = 200, 60, 50
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  credit:
    url: %s/v2
    price: 0.01
    jitter: 20ms # the machine that runs the tests is small and busy
    bucket: {rate: 50/s, capacity: 60}
`)
	events, err := r.NC.SubscribeSync("weir.events.throttled.credit.vip-1")
	if err != nil {
		t.Fatal(err)
	}
	inbox := nats.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if err := r.NC.PublishRequest("weir.jobs.credit.vip-1", fmt.Sprintf("%s.%d", inbox, i), fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	accepted, throttled := 0, 0
	for range jobs {
		msg, err := answers.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		var a struct {
			Stream   string `json:"stream"`
			Seq      uint64 `json:"seq"`
			Position int    `json:"position"`
			ETAms    *int64 `json:"eta_ms"`
			Letter   uint64 `json:"dead_letter_seq"`
			Error    *struct {
				Code    int `json:"code"`
				ErrCode int `json:"err_code"`
			} `json:"error"`
		}
		if err := json.Unmarshal(msg.Data, &a); err != nil {
			t.Fatalf("%s: %v", msg.Data, err)
		}
		switch {
		case a.Error == nil:
			accepted++
			if a.Seq == 0 || a.Position < 1 || a.Position > capacity || a.ETAms == nil {
				t.Errorf("a receipt that does not make sense: %s", msg.Data)
			}
		case a.Error.Code == 429 && a.Error.ErrCode == 20429 && a.Letter > 0:
			throttled++
		default:
			t.Errorf("unexpected answer: %s", msg.Data)
		}
	}
	r.AwaitCalls(accepted)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	arrivals := r.API.All()
	t.Logf("accepted %d, throttled %d, called %d", accepted, throttled, len(arrivals))
	if accepted < capacity || accepted+throttled != jobs {
		t.Errorf("accepted %d and throttled %d of %d, the bucket holds %d", accepted, throttled, jobs, capacity)
	}
	if len(arrivals) != accepted {
		t.Errorf("%d calls for %d accepted jobs", len(arrivals), accepted)
	}
	r.Referee().CheckOrder(arrivals)
	r.Referee().CheckRate(arrivals, bucket.Rate{Count: rate, Per: time.Second, Burst: 1})
	r.Referee().Used(arrivals, capacity/3, rate, 0.95)
	if letters := r.Store().Messages("WEIR_DEAD"); letters != throttled {
		t.Errorf("%d letters for %d refusals", letters, throttled)
	}
	for i := range throttled {
		event, err := events.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatalf("event %d of %d: %v", i, throttled, err)
		}
		if !strings.Contains(string(event.Data), `"type":"weir.throttled.v1"`) {
			t.Errorf("not a throttled event: %s", event.Data)
		}
	}
	if results := r.Store().Messages("WEIR_RESULTS"); results != accepted {
		t.Errorf("%d results for %d jobs", results, accepted)
	}
	if calls := r.Store().Messages("WEIR_CALLS"); calls != accepted {
		t.Errorf("%d ledger records for %d calls", calls, accepted)
	}
}
