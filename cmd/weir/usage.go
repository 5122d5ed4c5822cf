package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/dispatcher"
)

// usageMargin is how much earlier than a period its calls are counted: what belongs to the period before counts too,
// rather than that a call at its edge does not.
const usageMargin = time.Second

// errNotCovered is a ledger that begins later than the period that is asked for.
var errNotCovered = errors.New("the ledger does not reach back to the beginning of the period: the limit opens with its next one; " +
	"to call before, apply a configuration in which it has another name, and as its count what you know to be left")

// readUsage adds up what the ledger knows to have been taken from limits since the times given for each. It reads the
// ledger as a stream: memory does not grow with it.
func readUsage(ctx context.Context, js jetstream.JetStream, api string, limits []bucket.Limit, since map[string]time.Time) (map[string]int64, error) {
	used := map[string]int64{}
	first := time.Now()
	for i := range limits {
		used[limits[i].Name] = 0
		if at := since[limits[i].Name]; at.Before(first) {
			first = at
		}
	}
	first = first.Add(-usageMargin)
	stream, err := js.Stream(ctx, dispatcher.CallsStream)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	info := stream.CachedInfo()
	if full := info.Config.MaxBytes > 0 && info.State.Bytes > uint64(info.Config.MaxBytes)/10*9; full && info.State.FirstTime.After(first) {
		return nil, errNotCovered
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &first, FilterSubjects: []string{dispatcher.CallsOf(api)},
	})
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return used, nil
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
		var c dispatcher.CallRecord
		if err := json.Unmarshal(msg.Data(), &c); err != nil {
			return nil, fmt.Errorf("ledger: a record cannot be read: %w", err)
		}
		for i := range limits {
			if l := &limits[i]; !c.Started.Before(since[l.Name].Add(-usageMargin)) {
				used[l.Name] += c.Units(l)
			}
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		if meta.NumPending == 0 {
			return used, nil
		}
	}
}
