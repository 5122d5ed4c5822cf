package httpapi

import (
	"encoding/json"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/spend"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLimitKeepsTheNewestDays: a limited list of days holds the newest days, in their order, as the command lists them.
func TestLimitKeepsTheNewestDays(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: ledger.CallsStream, Subjects: []string{"weir.calls.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: connect.ControlBucket}); err != nil {
		t.Fatal(err)
	}
	var days []string
	now := time.Now().UTC()
	for ago := range 4 {
		at := now.AddDate(0, 0, ago-3)
		days = append(days, at.Format(time.DateOnly))
		r := ledger.Record{API: "pay", Key: "k", Started: at, Billed: deadletter.BilledYes, Price: "0.10"}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), r.Subject(), data); err != nil {
			t.Fatal(err)
		}
	}
	var account spend.Account
	askedAPI(t, js).get(t, "/spend?by=day&limit=2", &account)
	if len(account.Groups) != 2 {
		t.Fatalf("%d days are listed", len(account.Groups))
	}
	if account.Groups[0].Day != days[2] || account.Groups[1].Day != days[3] {
		t.Errorf("of the days %v two are listed: %s and %s", days, account.Groups[0].Day, account.Groups[1].Day)
	}
}
