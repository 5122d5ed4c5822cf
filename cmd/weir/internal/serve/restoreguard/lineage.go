package restoreguard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lineageKey is the key of the lineage in the control bucket.
const lineageKey = "lineage"

// lineage identifies a store, and counts how often weir was started on it.
type lineage struct {
	Store      string `json:"store"`
	Generation uint64 `json:"generation"`
}

// readLineage returns the lineage with its revision; both are zero if no weir was ever started on the store.
func readLineage(ctx context.Context, control jetstream.KeyValue, nc *nats.Conn) (l lineage, revision uint64, err error) {
	m, err := newest(ctx, control, nc, lineageKey)
	if err != nil || m == nil {
		return lineage{}, 0, err
	}
	if err := json.Unmarshal(m.Data, &l); err != nil || l.Store == "" {
		return lineage{}, 0, fmt.Errorf("the generation of the store (%s in %s) cannot be read: `nats kv del %s %s` makes weir begin a new one",
			lineageKey, control.Bucket(), control.Bucket(), lineageKey)
	}
	return l, m.Seq, nil
}

// newest returns the newest message for a key of a bucket, nil if there is none. It asks only the stream's leader,
// because the older state of a lagging replica would look like a restored store.
func newest(ctx context.Context, control jetstream.KeyValue, nc *nats.Conn, key string) (*stream.LeaderMessage, error) {
	m, err := stream.NewestEntry(ctx, nc, control.Bucket(), key)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", key, control.Bucket(), err)
	}
	if m == nil || len(m.Data) == 0 { // the key was deleted
		return nil, nil //nolint:nilnil // none is no error
	}
	return m, nil
}

// mostRaces bounds how often advance tries because other replicas start at the same moment.
const mostRaces = 32

// advance counts this start, and returns the store's new lineage. least is the newest generation in any note: the new
// generation is higher than least, too.
func advance(ctx context.Context, control jetstream.KeyValue, nc *nats.Conn, least uint64) (lineage, error) {
	for range mostRaces {
		l, revision, err := readLineage(ctx, control, nc)
		if err != nil {
			return lineage{}, err
		}
		if l.Store == "" {
			l.Store = rand.Text()
		}
		l.Generation = max(l.Generation, least) + 1
		data, err := json.Marshal(l)
		if err != nil {
			panic("a generation that JSON cannot carry: " + err.Error())
		}
		if revision == 0 {
			_, err = control.Create(ctx, lineageKey, data)
		} else {
			_, err = control.Update(ctx, lineageKey, data, revision)
		}
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return lineage{}, fmt.Errorf("raise the store's generation number: %w", err)
		}
	}
	return lineage{}, errors.New("raise the store's generation number: too many replicas start at the same moment: start this one again")
}
