package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// Glance is what an index keeps of a record.
type Glance struct {
	Seq      uint64    `json:"-"` // of the record
	Stored   time.Time `json:"-"` // by the server
	API      string    `json:"api"`
	Key      string    `json:"key"`
	Job      string    `json:"job"`
	Call     int       `json:"call"`
	Accepted time.Time `json:"accepted"`
	Started  time.Time `json:"started"`
	Status   int       `json:"status"`
	Outcome  string    `json:"outcome"`
	Final    bool      `json:"final"`
	Inquiry  string    `json:"inquiry"`
}

// glance reads a record only as far as an index needs it: of a call that did not end its job only the id, the key and
// when it started. ok is false for what cannot be read.
func glance(msg jetstream.Msg, meta *jetstream.MsgMetadata) (g Glance, ok bool) {
	data := msg.Data()
	if !bytes.Contains(data, []byte(final)) {
		if g, ok := plainGlance(msg.Subject(), data); ok {
			g.Seq, g.Stored = meta.Sequence.Stream, meta.Timestamp
			return g, true
		}
	}
	if err := json.Unmarshal(data, &g); err != nil || (&Record{API: g.API, Key: g.Key}).Subject() != msg.Subject() {
		return Glance{}, false
	}
	g.Seq, g.Stored = meta.Sequence.Stream, meta.Timestamp
	return g, true
}

// plainGlance reads a record as Record.Message writes it, if JSON writes the id unchanged. It takes the key from the
// subject.
func plainGlance(subject string, data []byte) (g Glance, ok bool) {
	job, hasID := plainField(data, `,"job":"`)
	started, hasStart := plainField(data, `,"started":"`)
	names, named := CallSubjects.Names(subject, 2)
	if !hasID || !hasStart || !named || data[len(data)-1] != '}' {
		return Glance{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, started)
	return Glance{API: names[0], Key: names[1], Job: job, Started: at}, err == nil
}

func plainField(data []byte, field string) (value string, ok bool) {
	at := bytes.Index(data, []byte(field))
	if at < 0 {
		return "", false
	}
	rest := data[at+len(field):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return "", false
	}
	return string(rest[:end]), true
}

// Take receives what an index keeps of a record; ok is false if the record cannot be read.
type Take func(g Glance, ok bool) error

// GlanceBack passes the records before a sequence to take, the newest first, until take fails; stream.ErrEnough ends it
// without an error. It blocks until all are read, or ctx ends.
func GlanceBack(ctx context.Context, js jetstream.JetStream, before uint64, take Take) error {
	n := stream.Newest{JetStream: js, Stream: CallsStream, Before: before}
	_, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error { return take(passed(msg, meta)) })
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// GlanceOn passes the records behind a sequence to take, those that are there and those that come, until take fails,
// the ledger can no longer be read, or ctx ends.
func GlanceOn(ctx context.Context, js jetstream.JetStream, after uint64, take Take) error {
	p := portion{stream: CallsStream, after: after}
	return p.follow(ctx, js, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		return take(passed(msg, meta))
	})
}

// passed returns a glance that has its place even if the record cannot be read.
func passed(msg jetstream.Msg, meta *jetstream.MsgMetadata) (Glance, bool) {
	g, ok := glance(msg, meta)
	g.Seq, g.Stored = meta.Sequence.Stream, meta.Timestamp
	return g, ok
}
