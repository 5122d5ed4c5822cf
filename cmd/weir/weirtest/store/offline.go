package store

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Offline gives access to the store of a worker that is not running.
type Offline struct {
	t       *testing.T
	JS      jetstream.JetStream
	safeKey string // form of the idempotency keys in calls of the api safe
}

// NewOffline returns access over js for a weir whose apis are at a url.
func NewOffline(t *testing.T, js jetstream.JetStream, api string) *Offline {
	t.Helper()
	place, err := url.Parse(api + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	safe := httpcall.API{URL: place, Idempotency: &httpcall.Idempotency{Header: "Idempotency-Key"}, Rule: &ingest.Rule{Methods: []string{"POST"}}}
	return &Offline{t, js, safe.KeyIdentity()}
}

// Leave writes what is left of a job. It returns the time before which the job must not be called.
func (o *Offline) Leave(api, key string, c Left) time.Time {
	p := queue.PartitionOf(key, 4)
	var seqs []uint64
	for n := range max(1, c.jobs) {
		id := fmt.Sprintf("%s-job-%d", key, n)
		header := nats.Header{"Weir-Job-Id": {id}, "Weir-Path": {"/" + key}}
		if c.late {
			header["Weir-Deadline"] = []string{"1ms"}
		}
		seqs = append(seqs, o.Put(QueueName(api, p, "j", key), key+"/"+id, "pay", header))
	}
	stream, until := queue.StreamName(api, p), time.Now().Add(c.wait)
	accepted := o.StoredAt(stream, seqs[0])
	before := time.Duration(0)
	if c.before {
		before = time.Hour
	}
	accepted = accepted.Add(-before)
	if c.taken {
		o.take(api, key, fmt.Sprintf("%s.%d.%d", stream, seqs[0], bucket.MicrosOf(accepted.Add(-time.Hour))))
	}
	keyed := c.keyed
	if keyed == "" && api == "safe" {
		keyed = o.safeKey
	}
	intend := func() {
		for i, call := range c.Intents {
			var intents []queue.Intent
			for _, seq := range seqs {
				intents = append(intents, queue.Intent{
					Seq: seq, Call: call, Idempotency: keyed, Deaths: c.deaths, KeySum: queue.KeySum(key), Epoch: c.epoch,
					Accepted: bucket.MicrosOf(o.StoredAt(stream, seq).Add(-before)),
				})
			}
			o.Put(QueueName(api, p, "i", fmt.Sprintf("%s-%d", key, i)), "", intents, nil)
		}
	}
	if !c.behind {
		intend()
	}
	if c.mark != nil {
		mark := *c.mark
		mark.Seq, mark.NotBefore, mark.Accepted, mark.KeySum = seqs[0], bucket.MicrosOf(until), bucket.MicrosOf(accepted), queue.KeySum(key)
		o.Put(QueueName(api, p, "r", key), "", mark, nil)
	}
	if c.behind {
		intend()
	}
	if c.Record != nil {
		record := *c.Record
		record.API, record.Key, record.Stream, record.Seq, record.NotBefore = api, key, stream, seqs[0], bucket.MicrosOf(until)
		record.Job, record.Dedupe, record.Accepted, record.Ended = key+"-job-0", key+"-job-0", accepted, time.Now()
		if c.other {
			record.Key, record.Dedupe = key+"-other", "another"
		}
		o.Put(record.Subject(), "", record, nil)
	}
	if c.result {
		h := nats.Header{
			"Weir-Job-Id": {key + "-job-0"}, "Weir-Outcome": {"done"}, "Weir-Status": {"201"}, "Weir-Attempts": {"1"}, "Weir-Calls": {"1"},
			"Weir-Called-At": {until.Format(time.RFC3339Nano)}, "Weir-Finished-At": {until.Format(time.RFC3339Nano)},
		}
		prefix := "result."
		if c.reused {
			prefix = ledger.ReusedPrefix
			h["Weir-Attempts"], h["Weir-Calls"], h[ledger.HeaderReused] = []string{"0"}, []string{"0"}, []string{"another"}
		}
		o.Put(ledger.ResultSubject(api, key), prefix+ledger.OriginOf(stream, seqs[0], bucket.MicrosOf(accepted)), "kept", h)
	}
	return until
}

// take stores a result, a record and a letter of another job, under ids that belong to origin.
func (o *Offline) take(api, key, origin string) {
	other := nats.Header{"Weir-Job-Id": {"lost"}, "Weir-Outcome": {"done"}, "Weir-Status": {"200"}}
	o.Put(ledger.ResultSubject(api, key+"-lost"), "result."+origin, "lost", other)
	o.Put("weir.calls."+api+"."+key+"-lost", "call."+origin+".1", "lost", nil)
	o.Put("weir.dead."+api+".unknown."+key+"-lost", "letter."+origin, "lost", other)
}

// StoredAt returns when a stream stored a message.
func (o *Offline) StoredAt(stream string, seq uint64) time.Time {
	o.t.Helper()
	s, err := o.JS.Stream(o.t.Context(), stream)
	if err != nil {
		o.t.Fatal(err)
	}
	msg, err := s.GetMsg(o.t.Context(), seq)
	if err != nil {
		o.t.Fatal(err)
	}
	return msg.Time
}

func (o *Offline) Put(subject, id string, value any, h nats.Header) uint64 {
	o.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		o.t.Fatal(err)
	}
	msg := nats.NewMsg(subject)
	msg.Data = data
	for name, values := range h {
		msg.Header[name] = values
	}
	if id != "" {
		msg.Header.Set("Nats-Msg-Id", id)
	}
	ack, err := o.JS.PublishMsg(o.t.Context(), msg)
	if err != nil {
		o.t.Fatal(err)
	}
	return ack.Sequence
}
