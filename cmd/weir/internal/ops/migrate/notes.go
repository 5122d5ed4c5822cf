package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
)

// noteBucket is the key-value bucket for the notes of moves. It exists at both ends and is never moved.
const noteBucket = "weir_move"

// Keys of the two notes. One server can have both: if jobs were moved to it and are now moved from it, and while jobs
// that were moved from it come back.
const (
	leavingKey  = "leaving"
	arrivingKey = "arriving"
)

// note prevents weir from starting on a server that does not have the jobs, or does not have all of them yet. Jobs at
// two places would be called twice.
type note struct {
	ID   string    `json:"id"`
	From string    `json:"from"`
	To   string    `json:"to"`
	Who  string    `json:"who"`
	At   time.Time `json:"at"`
	Done bool      `json:"done"`
	// Last has the last sequence of each copied stream, once the move is done. What came to the source later was not
	// moved.
	Last map[string]uint64 `json:"last,omitempty"`
}

// readNote returns a note, nil if there is none. It asks the stream's leader. A lagging replica could lack a move that
// was begun, or one that is done, and jobs would then be called at two places.
func readNote(ctx context.Context, nc *nats.Conn, key string) (*note, error) {
	msg, err := stream.NewestEntry(ctx, nc, noteBucket, key)
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound, err == nil && (msg == nil || len(msg.Data) == 0):
		return nil, nil //nolint:nilnil // no note is no error
	case err != nil:
		return nil, fmt.Errorf("the note of a move (%s in %s): %w", key, noteBucket, err)
	}
	var n note
	if err := json.Unmarshal(msg.Data, &n); err != nil {
		return nil, fmt.Errorf("the note of a move (%s in %s) cannot be read: %w", key, noteBucket, err)
	}
	return &n, nil
}

// writeNote stores a note. If the server syncs before it acknowledges, the note is on disk when writeNote returns.
func writeNote(ctx context.Context, js jetstream.JetStream, replicas int, key string, n note) error {
	kv, err := js.KeyValue(ctx, noteBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: noteBucket, Description: "weir: from where and to where jobs were moved", Replicas: replicas,
		})
	}
	if err != nil {
		return fmt.Errorf("key-value bucket %s: %w", noteBucket, connect.ExplainStreams(err))
	}
	data, err := json.Marshal(n)
	if err != nil {
		panic("a note that JSON cannot carry: " + err.Error())
	}
	if _, err := kv.Put(ctx, key, data); err != nil {
		return fmt.Errorf("note the move: %w", err)
	}
	return nil
}

// dropNote removes a note, if there is one.
func dropNote(ctx context.Context, js jetstream.JetStream, key string) error {
	kv, err := js.KeyValue(ctx, noteBucket)
	if err == nil {
		err = kv.Purge(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("forget the move: %w", err)
	}
	return nil
}

// ArrivedAt returns when the last move of jobs to this server began or ended. It returns zero if no jobs were moved to
// it.
func ArrivedAt(ctx context.Context, js jetstream.JetStream) (time.Time, error) {
	n, err := readNote(ctx, js.Conn(), arrivingKey)
	if err != nil || n == nil {
		return time.Time{}, err
	}
	return n.At, nil
}

// RefuseElsewhere fails if the jobs of this server are on another server, or are still being moved to this one.
func RefuseElsewhere(ctx context.Context, js jetstream.JetStream) error {
	left, err := readNote(ctx, js.Conn(), leavingKey)
	if err != nil {
		return err
	}
	if left != nil {
		return left.away()
	}
	arriving, err := readNote(ctx, js.Conn(), arrivingKey)
	if err != nil {
		return err
	}
	if arriving != nil && !arriving.Done {
		return fmt.Errorf("jobs are being moved to this server from %s (by %s, at %s), and not all are here: finish the move with the same `weir move`, or cancel it with `weir move --abandon`",
			arriving.From, arriving.Who, cli.ClockTime(arriving.At))
	}
	return nil
}

// away returns the error that says where this server's jobs are.
func (n *note) away() error {
	what, fix := "are being moved", "finish the move with the same `weir move`, or cancel it with `weir move --abandon`"
	if n.Done {
		what, fix = "were moved", "start weir there, with WEIR_NATS_URL; what is here would be called a second time"
	}
	return fmt.Errorf("the jobs of this server %s to %s (by %s, at %s): %s", what, n.To, n.Who, cli.ClockTime(n.At), fix)
}
