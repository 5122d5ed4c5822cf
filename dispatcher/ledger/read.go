package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// ErrNoLedger says that no call was ever recorded on a server.
var ErrNoLedger = errors.New("there is no ledger: weir has not run on this server")

// Filter chooses records. The zero value chooses all.
type Filter struct {
	API   string
	Key   string    // needs an API
	Since time.Time // stored then or later
}

// ledgerBatch is how many records are on their way at once.
const ledgerBatch = 1000

// Read gives every record that is there now and that f chooses to take, in the order they were stored: about that
// in which the calls ended. read and of tell how far it is. It ends when take fails. Records that nobody can read are
// counted and left out.
func Read(ctx context.Context, js jetstream.JetStream, f Filter, take func(c *Record, read, of uint64) error) (unreadable int, err error) {
	calls, err := js.Stream(ctx, CallsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, ErrNoLedger
	} else if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	subject := CallsPrefix + ">"
	if f.API != "" {
		subject = CallsOf(f.API)
	}
	if f.API != "" && f.Key != "" {
		subject = (&Record{API: f.API, Key: f.Key}).Subject()
	}
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverAllPolicy}
	if !f.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &f.Since
	}
	last, err := stream.LastOf(ctx, js.Conn(), CallsStream, subject)
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	read := uint64(0)
	err = stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: calls, From: cfg, Last: last},
		func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			var c Record
			read++
			if err := json.Unmarshal(msg.Data(), &c); err != nil || c.API == "" {
				unreadable++
				return nil
			}
			c.Stored = meta.Timestamp
			return take(&c, read, read+meta.NumPending)
		})
	if err != nil {
		return unreadable, fmt.Errorf("read the ledger: %w", err)
	}
	return unreadable, nil
}
