package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
)

// Bounds of the part of the ledger that is read at the start.
const (
	maxTail = 500_000 // records
	tailAge = 10 * time.Minute
)

// tail is what the newest part of the ledger says. It is read once, at the start, and not changed after.
type tail struct {
	byMessage map[string]map[uint64]CallRecord // by stream and sequence: the last record
	tats      map[string]map[string]bucket.Micros
	finished  map[string][]bucket.Finished // by api: jobs whose ids are still known
}

// last is the newest record of the job that stands at this sequence of its stream.
func (t *tail) last(stream string, seq uint64) (CallRecord, bool) {
	c, ok := t.byMessage[stream][seq]
	return c, ok
}

// tat is the theoretical arrival time after the newest recorded call of a key, 0 when there is none.
func (t *tail) tat(api, key string) bucket.Micros { return t.tats[api][key] }

func (t *tail) add(c CallRecord, dedupe time.Duration) {
	if until := c.Ended.Add(dedupe); c.Final && time.Now().Before(until) {
		t.finished[c.API] = append(t.finished[c.API], bucket.Finished{Key: c.Key, DedupeID: c.Dedupe, Seq: c.Seq, Until: until})
	}
	records := t.byMessage[c.Stream]
	if records == nil {
		records = map[uint64]CallRecord{}
		t.byMessage[c.Stream] = records
	}
	if c.Call >= records[c.Seq].Call {
		records[c.Seq] = c
	}
	tats := t.tats[c.API]
	if tats == nil {
		tats = map[string]bucket.Micros{}
		t.tats[c.API] = tats
	}
	tats[c.Key] = max(tats[c.Key], c.TAT)
}

// readTail reads the ledger's last records: those of the dedupe time before its last one, and of ten minutes at least,
// but no more than the last 500,000.
func readTail(ctx context.Context, js jetstream.JetStream, dedupe time.Duration) (*tail, error) {
	t := &tail{
		byMessage: map[string]map[uint64]CallRecord{}, tats: map[string]map[string]bucket.Micros{},
		finished: map[string][]bucket.Finished{},
	}
	stream, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return t, nil
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: state.FirstSeq}
	if state.LastSeq-state.FirstSeq >= maxTail {
		cfg.OptStartSeq = state.LastSeq - maxTail + 1
	}
	if start := state.LastTime.Add(-max(tailAge, dedupe)); state.FirstTime.Before(start) && state.Msgs < maxTail {
		cfg = jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start}
	}
	consumer, err := stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer msgs.Stop()
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		var c CallRecord
		if err := json.Unmarshal(msg.Data(), &c); err == nil {
			t.add(c, dedupe)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		if meta.NumPending == 0 {
			return t, nil
		}
	}
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when there is none.
func (d *Dispatcher) lastTAT(ctx context.Context, api, key string) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	stream, err := d.opts.JetStream.Stream(ctx, CallsStream)
	if err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	c := CallRecord{API: api, Key: key}
	msg, err := stream.GetLastMsgForSubject(ctx, c.Subject())
	if isNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("ledger: last call of %s: %w", c.Subject(), err)
	}
	if err := json.Unmarshal(msg.Data, &c); err != nil {
		return 0, fmt.Errorf("ledger: record %d: %w", msg.Sequence, err)
	}
	return c.TAT, nil
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }
