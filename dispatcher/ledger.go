package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoLedger says that no call was ever recorded on a server.
var ErrNoLedger = errors.New("there is no ledger: weir has not run on this server")

// LedgerFilter chooses records. The zero value chooses all.
type LedgerFilter struct {
	API   string
	Key   string    // needs an API
	Since time.Time // stored then or later
}

// ledgerBatch is how many records are on their way at once.
const ledgerBatch = 1000

// ReadLedger gives every record that is there now and that f chooses to take, in the order they were stored: about that
// in which the calls ended. read and of tell how far it is. It ends when take fails. Records that nobody can read are
// counted and left out.
func ReadLedger(ctx context.Context, js jetstream.JetStream, f LedgerFilter, take func(c *CallRecord, read, of uint64) error) (unreadable int, err error) {
	stream, err := js.Stream(ctx, CallsStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, ErrNoLedger
	} else if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	subject := callsPrefix + ">"
	if f.API != "" {
		subject = CallsOf(f.API)
	}
	if f.API != "" && f.Key != "" {
		subject = (&CallRecord{API: f.API, Key: f.Key}).Subject()
	}
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverAllPolicy}
	if !f.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &f.Since
	}
	consumer, err := stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	of := info.NumPending + info.Delivered.Consumer
	if of == 0 {
		return 0, nil
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(ledgerBatch))
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	defer msgs.Stop()
	for read := uint64(1); read <= of; {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		switch {
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout):
			continue // the ordered consumer sets itself up anew
		case err != nil:
			return unreadable, fmt.Errorf("read the ledger: %w", err)
		}
		var c CallRecord
		if err := json.Unmarshal(msg.Data(), &c); err != nil || c.API == "" {
			unreadable++
		} else if err := take(&c, read, of); err != nil {
			return unreadable, err
		}
		read++
	}
	return unreadable, nil
}
