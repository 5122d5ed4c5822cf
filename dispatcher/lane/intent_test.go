package lane

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
)

// TestIntentsOfOneMessage checks that a message of intents has at most the bytes that its stream takes, and that the
// intents of a pack stay together.
func TestIntentsOfOneMessage(t *testing.T) {
	by := &Terms{Intent: 10}
	single, member := intending{&Job{Terms: by}, make(chan bool, 1)}, intending{&Job{Terms: by}, nil}
	b := &IntentBatch{waiting: []intending{single, single, member, member, single, member, single}}
	for i, want := range []int{2, 3, 2} {
		if got := len(b.nextLocked(40)); got != want {
			t.Errorf("message %d has %d intents, want %d", i, got, want)
		}
	}
	if b.waiting != nil {
		t.Errorf("%d intents are left", len(b.waiting))
	}
}

// TestIntentBytes checks that no intent has more bytes than intentBytes returns for it, and not far fewer.
func TestIntentBytes(t *testing.T) {
	at := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/v1"}
	now := time.Unix(1_900_000_000, 0)
	for _, api := range []*httpcall.API{
		{URL: at, Timeout: time.Minute},
		{URL: at, Timeout: time.Minute, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key", Quoted: true}},
		{URL: at, Timeout: time.Minute, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"}, Pack: &httpcall.Pack{Jobs: 500}},
	} {
		j := &Job{Job: &schedule.Job{Seq: 1 << 40}, Terms: &Terms{API: api}, Accepted: bucket.MicrosOf(now)}
		if api.Pack != nil {
			j.In = &queue.Pack{ID: "01890a5d-ac96-774b-bcce-b302099a8057", Place: 499, Of: 500}
		}
		i := queue.Intent{
			Seq: j.Seq, Call: 12, Deaths: 4, Idempotency: j.Identity(now), Timeout: api.Timeout, Price: 1_000_000_000, Target: api.Target(),
			Accepted: j.Accepted, Epoch: 1 << 50, KeySum: queue.KeySum("a"), Entry: 1 << 62, Pack: j.In,
		}
		data, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		if size, most := int64(len(data)), intentBytes(api); size >= most || size < most-60 {
			t.Errorf("an intent has %d bytes, reckoned are %d: %s", size, most, data)
		}
	}
}
