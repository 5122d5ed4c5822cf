package admin

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"

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
