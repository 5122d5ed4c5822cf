package restoreguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// OrderKey is the key of the order in the control bucket.
const OrderKey = "restored"

// ErrOrderLost reports that there is an order, and that it cannot be read.
var ErrOrderLost = errors.New("this store was restored from a backup before, and the value that says when (" + OrderKey + " of the control bucket) is lost, because the store is damaged")

// Order says how to continue with a restored store. An order stays in force until another one replaces it.
type Order struct {
	// At is when the order was given. Calls before At may have been made without a record in this store.
	At   time.Time `json:"at"`
	Who  string    `json:"who,omitempty"`
	From time.Time `json:"from"` // time of the newest record in the ledger; zero: there is none
	// Newest is when the newest message of all streams was stored. The backup was made at that time or later.
	Newest time.Time `json:"newest"`
	// Counted says that limits continue with the counts in the store. Otherwise they count as used up.
	Counted bool `json:"counted,omitempty"`
	// Streams are the marks of weir's streams in the backup, queues included.
	Streams map[string]Mark `json:"streams"`
}

// ReadOrder reads the order in force, nil if there is none. It returns ErrOrderLost if the order cannot be read.
func ReadOrder(ctx context.Context, control jetstream.KeyValue, nc *nats.Conn) (*Order, error) {
	m, err := stream.NewestEntry(ctx, nc, control.Bucket(), OrderKey)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", OrderKey, control.Bucket(), err)
	}
	if m == nil || m.Deleted() {
		return nil, nil //nolint:nilnil // none is no error
	}
	var o Order
	if err := json.Unmarshal(m.Data, &o); err != nil {
		return nil, ErrOrderLost
	}
	return &o, nil
}

// Give stores the order, which puts it in force for this start and all later ones.
func (o *Order) Give(ctx context.Context, control jetstream.KeyValue) error {
	data, err := json.Marshal(o)
	if err != nil {
		panic("an order that JSON cannot carry: " + err.Error())
	}
	if _, err := control.Put(ctx, OrderKey, data); err != nil {
		return fmt.Errorf("note that the store was restored: %w", err)
	}
	return nil
}

// NewOrder returns an order for the store as it is now.
func NewOrder(ctx context.Context, js jetstream.JetStream, ledger string, at time.Time) (*Order, error) {
	names, err := streams(ctx, js)
	if err != nil {
		return nil, err
	}
	marks, err := marksOf(ctx, js, names)
	if err != nil {
		return nil, err
	}
	o := &Order{At: at.UTC(), From: marks[ledger].At, Streams: map[string]Mark{}}
	for name, m := range marks {
		if strings.HasPrefix(name, "WEIR_") && m.Last > 0 {
			o.Streams[name] = m
		}
		if name != "KV_weir_control" && m.At.After(o.Newest) { // this start has already written to the control bucket
			o.Newest = m.At
		}
	}
	return o, nil
}

// Until returns the last sequence that each stream had in the backup. It omits streams that are gone or that were
// created again since.
func (o *Order) Until(ctx context.Context, js jetstream.JetStream) (map[string]uint64, error) {
	names := make([]string, 0, len(o.Streams))
	for name := range o.Streams {
		names = append(names, name)
	}
	is, err := marksOf(ctx, js, names)
	if err != nil {
		return nil, err
	}
	until := map[string]uint64{}
	for name, was := range o.Streams {
		if now, there := is[name]; there && now.Born.Equal(was.Born) {
			until[name] = was.Last
		}
	}
	return until, nil
}
