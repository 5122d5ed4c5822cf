package queue

import (
	"testing"

	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestCountOfAFormerLeader checks that a number of messages does not count if it is older than the key's last message:
// a stream's former leader has answered, and lacks a job of the key.
func TestCountOfAFormerLeader(t *testing.T) {
	server := natstest.Start(t, t.TempDir(), 0)
	nc, err := nats.Connect(server.ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	q := openBeside(t, nc, 10)
	p := q.partitions[0]
	subject := queueSubject("pay", 0, kindJob, ingest.Token("k"))
	info := "$JS.API.STREAM.INFO." + p.source.name
	if _, err := q.js.Publish(t.Context(), subject, nil); err != nil {
		t.Fatal(err)
	}
	former, err := nc.Request(info, []byte(`{"subjects_filter":">"}`), await.Patience)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.js.Publish(t.Context(), subject, nil); err != nil {
		t.Fatal(err)
	}
	var counted tally
	if err := p.intake.count(t.Context(), subject, &counted); err != nil || counted.jobs != 2 {
		t.Errorf("the leader counts %d jobs, %v; want 2", counted.jobs, err)
	}
	if err := server.GlobalAccount().AddMapping(info, "former"); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe("former", func(m *nats.Msg) { _ = m.Respond(former.Data) }); err != nil {
		t.Fatal(err)
	}
	counted = tally{}
	if err := p.intake.count(t.Context(), subject, &counted); err == nil || counted.read {
		t.Errorf("a former leader's count of %d jobs counts", counted.jobs)
	}
}
