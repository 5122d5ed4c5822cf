package restoreguard

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// orderKey is the key of the order in the control bucket.
const orderKey = "restored"

// Order says how to continue with a store that was restored. It stays until the next one.
type Order struct {
	// At is when the order was given: until then calls may have been made that the store does not know.
	At   time.Time `json:"at"`
	Who  string    `json:"who,omitempty"`
	From time.Time `json:"from"` // of the newest record in the ledger, zero if there is none
	// Newest is when the newest message of all was stored: the backup is not older.
	Newest time.Time `json:"newest"`
	// Counted says that limits continue with what the store has counted, instead of counting as used up.
	Counted bool `json:"counted,omitempty"`
	// Streams are weir's streams as they were in the backup, queues among them.
	Streams map[string]Mark `json:"streams"`
}

// ReadOrder reads the order that is in force, nil if there is none.
func ReadOrder(ctx context.Context, control jetstream.KeyValue, nc *nats.Conn) (*Order, error) {
	m, err := newest(ctx, control, nc, orderKey)
	if err != nil || m == nil {
		return nil, err
	}
	var o Order
	if err := json.Unmarshal(m.Data, &o); err != nil {
		return nil, fmt.Errorf("what is to become of a restored store (%s in %s) cannot be read: delete it (`nats kv del %s %s`) and start with --restored",
			orderKey, control.Bucket(), control.Bucket(), orderKey)
	}
	return &o, nil
}

// Give puts the order in force. It is stored when it returns.
func (o *Order) Give(ctx context.Context, control jetstream.KeyValue) error {
	data, err := json.Marshal(o)
	if err != nil {
		panic("an order that JSON cannot carry: " + err.Error())
	}
	if _, err := control.Put(ctx, orderKey, data); err != nil {
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
		if name != "KV_weir_control" && m.At.After(o.Newest) { // this start has written there already
			o.Newest = m.At
		}
	}
	return o, nil
}

// Until returns the last sequences of the backup in those streams that are still the same.
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
