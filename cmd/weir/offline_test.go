package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/embedded"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// offline is the storage of a worker that does not run.
type offline struct {
	t  *testing.T
	js jetstream.JetStream
}

func (r *rig) offline(do func(o *offline)) {
	r.t.Helper()
	server, err := embedded.Start(r.t.Context(), embedded.Options{Listen: "127.0.0.1:0", Dir: filepath.Join(r.dir, "data"), SyncAlways: true, Log: testLog(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	do(&offline{r.t, js})
}

// leave writes what is left of a job, and returns the time before which it must not be called.
func (o *offline) leave(api, key string, c left) time.Time {
	p := queue.PartitionOf(key, 4)
	var seqs []uint64
	for n := range max(1, c.jobs) {
		id := fmt.Sprintf("%s-job-%d", key, n)
		header := nats.Header{"Weir-Job-Id": {id}, "Weir-Path": {"/" + key}}
		if c.late {
			header["Weir-Deadline"] = []string{"1ms"}
		}
		seqs = append(seqs, o.put(queueName(api, p, "j", key), key+"/"+id, "pay", header))
	}
	stream, until := queue.StreamName(api, p), time.Now().Add(c.wait)
	accepted := o.storedAt(stream, seqs[0])
	var of bucket.Micros // markers of earlier versions do not tell
	if c.before {
		accepted = accepted.Add(-time.Hour)
		of = bucket.MicrosOf(accepted)
	}
	if c.taken {
		o.take(api, key, fmt.Sprintf("%s.%d", stream, seqs[0]))
		o.take(api, key, fmt.Sprintf("%s.%d.%d", stream, seqs[0], bucket.MicrosOf(accepted.Add(-time.Hour))))
	}
	intend := func() {
		for i, call := range c.intents {
			var intents []queue.Intent
			for _, seq := range seqs {
				intents = append(intents, queue.Intent{
					Seq: seq, Call: call, Repeatable: api == "safe", Idempotency: c.keyed, Deaths: c.deaths, Accepted: of, Epoch: c.epoch,
				})
			}
			o.put(queueName(api, p, "i", fmt.Sprintf("%s-%d", key, i)), "", intents, nil)
		}
	}
	if !c.behind {
		intend()
	}
	if c.mark != nil {
		mark := *c.mark
		mark.Seq, mark.NotBefore, mark.Accepted = seqs[0], bucket.MicrosOf(until), of
		o.put(queueName(api, p, "r", key), "", mark, nil)
	}
	if c.behind {
		intend()
	}
	if c.record != nil {
		record := *c.record
		record.API, record.Key, record.Stream, record.Seq, record.NotBefore = api, key, stream, seqs[0], bucket.MicrosOf(until)
		record.Job, record.Dedupe, record.Accepted, record.Ended = key+"-job-0", key+"-job-0", accepted, time.Now()
		if c.other {
			record.Key, record.Dedupe = key+"-other", "another"
		}
		o.put(record.Subject(), "", record, nil)
	}
	if c.result {
		o.put(ledger.ResultSubject(api, key), fmt.Sprintf("result.%s.%d", stream, seqs[0]), "kept", nats.Header{
			"Weir-Job-Id": {key + "-job-0"}, "Weir-Outcome": {"done"}, "Weir-Status": {"201"}, "Weir-Attempts": {"1"}, "Weir-Calls": {"1"},
			"Weir-Called-At": {until.Format(time.RFC3339Nano)}, "Weir-Finished-At": {until.Format(time.RFC3339Nano)},
		})
	}
	return until
}

// take stores a result, a record and a letter of another job under the ids that go with an origin.
func (o *offline) take(api, key, origin string) {
	other := nats.Header{"Weir-Job-Id": {"lost"}, "Weir-Outcome": {"done"}, "Weir-Status": {"200"}}
	o.put(ledger.ResultSubject(api, key+"-lost"), "result."+origin, "lost", other)
	o.put("weir.calls."+api+"."+key+"-lost", "call."+origin+".1", "lost", nil)
	o.put("weir.dead."+api+".unknown."+key+"-lost", "letter."+origin, "lost", other)
}

// storedAt is when a stream stored a message.
func (o *offline) storedAt(stream string, seq uint64) time.Time {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), stream)
	if err != nil {
		o.t.Fatal(err)
	}
	msg, err := s.GetMsg(o.t.Context(), seq)
	if err != nil {
		o.t.Fatal(err)
	}
	return msg.Time
}

func (o *offline) put(subject, id string, value any, h nats.Header) uint64 {
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
	ack, err := o.js.PublishMsg(o.t.Context(), msg)
	if err != nil {
		o.t.Fatal(err)
	}
	return ack.Sequence
}

func queueName(api string, p int, kind, token string) string {
	return fmt.Sprintf("weir.q.%s.%d.%s.%s", api, p, kind, token)
}
