package limitstate

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestSpentByAnAccount checks that a lowered quota of an account that is used up is reported once, even if the first of
// the account's apis is new.
func TestSpentByAnAccount(t *testing.T) {
	r := newAccountRig(t)
	parse := func(count int, apis ...string) *config.Config {
		t.Helper()
		text := fmt.Sprintf("accounts:\n  acme:\n    limits: [{name: day, quota: %d/day}]\napis:\n", count)
		for _, api := range apis {
			text += "  " + api + ":\n    url: https://" + api + ".example.com\n    account: acme\n    bucket: {rate: 1/s, capacity: 1}\n"
		}
		c, err := config.Parse([]byte(text), config.Options{Name: "weir.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range uint64(7) {
		r.record(ledger.Record{
			API: "two", Key: "k", Job: "j", Stream: "WEIR_two_0", Seq: i + 1, Call: 1, Planned: time.Now(), Started: time.Now(),
			Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes, Limits: []string{"acme/day"}, Costs: []int64{1},
		})
	}
	before := parse(10, "three", "two")
	for _, apis := range [][]string{{"three", "two"}, {"a", "three", "two"}} {
		found, err := SpentAlready(t.Context(), r.o.JetStream, before, parse(5, apis...), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Limit != "acme/day" || found[0].Used != 7 {
			t.Errorf("with the apis %v it tells %+v", apis, found)
		}
	}
}

// TestSpentByANewLimit checks that a quota that is new and used up already is reported: it counts the earlier calls of
// its period.
func TestSpentByANewLimit(t *testing.T) {
	r := newAccountRig(t)
	parse := func(limits string) *config.Config {
		t.Helper()
		text := "apis:\n  two:\n    url: https://two.example.com\n    bucket: {rate: 1/s, capacity: 1}\n    limits: [{name: fast, rate: 9/s}" + limits + "]\n"
		c, err := config.Parse([]byte(text), config.Options{Name: "weir.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range uint64(7) {
		r.record(ledger.Record{
			API: "two", Key: "k", Job: "j", Stream: "WEIR_two_0", Seq: i + 1, Call: 1, Planned: time.Now(), Started: time.Now(),
			Sent: true, Outcome: ledger.Done, Final: true, Price: "0.00", Billed: deadletter.BilledYes,
		})
	}
	before := parse("")
	for count, want := range map[int]int{5: 1, 9: 0} {
		after := parse(fmt.Sprintf(", {name: day, quota: %d/day}", count))
		found, err := SpentAlready(t.Context(), r.o.JetStream, before, after, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != want || want > 0 && (found[0].Limit != "day" || found[0].Used != 7) {
			t.Errorf("with %d a day it tells %+v", count, found)
		}
	}
}
