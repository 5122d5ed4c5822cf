package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher"
	"weir/dispatcher/desk"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestHoldsAreLoggedWithoutWhatIsNotSo checks that a log line has no empty attributes: a pause of a whole api has no
// key, and some pauses have no reason.
func TestHoldsAreLoggedWithoutWhatIsNotSo(t *testing.T) {
	if got := whatHolds("sms", "", "by", "me", "reason", ""); !slices.Equal(got, []any{"api", "sms", "by", "me"}) {
		t.Errorf("of an api: %v", got)
	}
	if got := whatHolds("sms", "k", "by", "", "reason", "x"); !slices.Equal(got, []any{"api", "sms", "key", "k", "reason", "x"}) {
		t.Errorf("of a key: %v", got)
	}
}

// TestPausesEndByTheServersClock checks that a replica whose clock is ahead does not end a pause for all replicas, and
// looks again when the pause is over.
func TestPausesEndByTheServersClock(t *testing.T) {
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: connect.ControlBucket})
	if err != nil {
		t.Fatal(err)
	}
	entry := PauseEntry("sms", "")
	revision, err := kv.Put(t.Context(), entry, []byte(`{"for_ms":600000}`))
	if err != nil {
		t.Fatal(err)
	}
	until, ahead := time.Now().Add(10*time.Minute), time.Now().Add(time.Hour)
	p := &Pauses{js: js, kv: kv, log: slog.New(slog.DiscardHandler), inForce: map[string]inForce{entry: {revision, until, until}}}
	p.endOver(t.Context(), ahead)
	if _, err := kv.Get(t.Context(), entry); err != nil {
		t.Errorf("a pause of ten minutes has ended at once: %v", err)
	}
	if left := p.inForce[entry].due.Sub(ahead); left < 9*time.Minute || left > 11*time.Minute {
		t.Errorf("it looks again after %s", left)
	}
	p.inForce[entry] = inForce{revision, time.Now().Add(-time.Minute), ahead}
	p.endOver(t.Context(), ahead)
	if _, err := kv.Get(t.Context(), entry); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a pause that is over has not ended: %v", err)
	}
}

// TestPausesStayWhileAReplicaLags checks that a watch that begins again does not resume an api because its replica
// lags: it has an older entry of one pause, and none of another. Two servers stand for the leader and the replica. A
// pause that is really gone ends.
func TestPausesStayWhileAReplicaLags(t *testing.T) {
	leader, replica := natstest.JetStream(t), natstest.JetStream(t)
	put := func(kv jetstream.KeyValue, entry string) {
		t.Helper()
		if _, err := kv.Put(t.Context(), entry, []byte(`{"by":"me"}`)); err != nil {
			t.Fatal(err)
		}
	}
	older, missing, gone := PauseEntry("sms", ""), PauseEntry("mail", ""), PauseEntry("gone", "")
	var behind jetstream.KeyValue
	for _, js := range []jetstream.JetStream{leader, replica} {
		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: connect.ControlBucket})
		if err != nil {
			t.Fatal(err)
		}
		put(kv, older)                                        // 1
		if err := kv.Delete(t.Context(), older); err != nil { // 2
			t.Fatal(err)
		}
		if behind = kv; js == leader {
			put(kv, older)   // 3
			put(kv, missing) // 4
		}
	}
	var log bytes.Buffer
	p := &Pauses{
		kv: stream.Renewing(behind, leader.Conn()), dispatch: &dispatcher.Dispatcher{Desk: desk.New("")}, log: slog.New(slog.NewTextHandler(&log, nil)),
		inForce: map[string]inForce{older: {revision: 3}, missing: {revision: 4}, gone: {revision: 1}},
	}
	if err := p.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	caughtUp := make(chan error)
	go func() { caughtUp <- p.catchUp(t.Context()) }()
	put(behind, older)
	put(behind, missing)
	if err := await.Receive(t, "the watch to show all", caughtUp); err != nil {
		t.Fatal(err)
	}
	if len(p.inForce) != 2 || p.inForce[older].revision != 3 || p.inForce[missing].revision != 4 {
		t.Errorf("in force is %v", p.inForce)
	}
	if told := log.String(); strings.Count(told, "resumed") != 1 || !strings.Contains(told, "resumed api=gone") {
		t.Errorf("it tells: %s", told)
	}
}
