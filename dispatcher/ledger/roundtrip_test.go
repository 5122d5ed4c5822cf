package ledger

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"

	"pgregory.net/rapid"
)

// TestEncoding checks that a record is read as it was written, whatever its texts are.
func TestEncoding(t *testing.T) {
	names := rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.String(), 1, 3))
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string {
			return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[ -~]{0,8}`), rapid.String(), rapid.Just("\u00ff<\u2028\"final\":true")).Draw(t, name)
		}
		when := func(name string) time.Time {
			at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, name), rapid.Int64Range(0, 1e9-1).Draw(t, name+" ns")).UTC()
			return rapid.SampledFrom([]time.Time{{}, at, at.Truncate(time.Second)}).Draw(t, name+" as")
		}
		c := Record{
			API: text("api"), Key: text("key"), Job: text("job"), Dedupe: text("dedupe"), Stream: text("stream"), Seq: rapid.Uint64().Draw(t, "seq"),
			Call: rapid.Int().Draw(t, "call"), Attempt: rapid.Int().Draw(t, "attempt"), Redrives: rapid.IntRange(0, 2).Draw(t, "redrives"), Trace: text("trace"),
			Accepted: when("accepted"), Planned: when("planned"), Started: when("started"), Ended: when("ended"),
			Sent: rapid.Bool().Draw(t, "sent"), Status: rapid.IntRange(0, 999).Draw(t, "status"), Outcome: text("outcome"), Final: rapid.Bool().Draw(t, "final"),
			Detail: text("detail"), Price: text("price"), Billed: deadletter.Billed(text("billed")), Idempotency: text("idempotency"),
			NotBefore: bucket.Micros(rapid.Int64Range(0, 2).Draw(t, "not before")), TAT: bucket.Micros(rapid.Int64().Draw(t, "tat")),
			Limits: names.Draw(t, "limits"), Costs: rapid.SliceOfN(rapid.Int64(), 1, 3).Draw(t, "costs"),
			Unsettled: names.Draw(t, "unsettled"), Instance: text("instance"), Inquiry: text("inquiry"),
			HeldFor: text("held for"), HeldLimit: text("held limit"), HeldMS: rapid.Int64Range(0, 2).Draw(t, "held"),
		}
		if rapid.Bool().Draw(t, "answered") {
			c.Answer = &deadletter.Answer{Status: 500, ContentType: text("content type"), Body: []byte("x" + text("body"))}
		}
		msg := c.Message()
		got, err := parse(msg.Subject, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(*got, c) {
			t.Fatalf("written as %+v and read as %+v", c, *got)
		}
		if bytes.Contains(msg.Data, []byte(final)) != c.Final {
			t.Fatalf("the readers of ends misjudge %s", msg.Data)
		}
	})
}

// TestEncodingIsWhole checks that each field of a record is written and read, including fields added later.
func TestEncodingIsWhole(t *testing.T) {
	of := reflect.TypeFor[Record]()
	for i := range of.NumField() {
		if of.Field(i).Tag.Get("json") == "-" {
			continue
		}
		var c Record
		switch field := reflect.ValueOf(&c).Elem().Field(i); field.Interface().(type) {
		case time.Time:
			field.Set(reflect.ValueOf(time.Unix(1, 1).UTC()))
		case *deadletter.Answer:
			field.Set(reflect.ValueOf(&deadletter.Answer{Status: 500}))
		case *queue.Operation:
			field.Set(reflect.ValueOf(&queue.Operation{Address: "https://api.example.com/1", Started: time.Unix(2, 0).UTC(), Until: 3, Costs: []int64{4}}))
		case *queue.Pack:
			field.Set(reflect.ValueOf(&queue.Pack{ID: "one", Place: 1, Of: 2}))
		case []string:
			field.Set(reflect.ValueOf([]string{"one", "two"}))
		case []int64:
			field.Set(reflect.ValueOf([]int64{1, 2}))
		case map[string]int64:
			field.Set(reflect.ValueOf(map[string]int64{"tokens": 7}))
		default:
			switch field.Kind() {
			case reflect.String:
				field.SetString("text")
			case reflect.Bool:
				field.SetBool(true)
			case reflect.Uint64:
				field.SetUint(7)
			default:
				field.SetInt(7)
			}
		}
		msg := c.Message()
		if got, err := parse(msg.Subject, msg.Data); err != nil || !reflect.DeepEqual(*got, c) {
			t.Errorf("with %s a record is written as %s and read as %+v: %v", of.Field(i).Name, msg.Data, got, err)
		}
	}
}

// BenchmarkEncoding writes a usual record, as happens once a call: it should stay under 1 % of the CPU that a job takes.
func BenchmarkEncoding(b *testing.B) {
	now := time.Now().UTC()
	c := Record{
		API: "scoring", Key: "acme", Job: "0f3c0a52-2e43-4d4a-9a55-d4e0ff2d1a0e", Dedupe: "0f3c0a52-2e43-4d4a-9a55-d4e0ff2d1a0e", Stream: "WEIR_scoring_3", Seq: 90210,
		Call: 1, Attempt: 1, Accepted: now, Planned: now, Started: now, Ended: now, Sent: true, Status: 200, Outcome: Done, Final: true, Price: "0.40",
		Billed: deadletter.BilledYes, TAT: 1790000000000000, Instance: "weir-0",
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Message()
	}
}
