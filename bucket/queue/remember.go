package queue

import (
	"context"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/ingest"
)

// Remember makes the queue know the ids of the jobs that wait in it, where its streams do not: after they were restored.
// It must be called before the intake starts.
func (q *Queue) Remember(ctx context.Context) error {
	now := time.Now()
	for _, p := range q.partitions {
		found, err := stream.Remember(ctx, q.js, p.name, now.Add(-q.dedupe.Reach(now)))
		if err != nil {
			return err
		}
		var waiting []Finished
		for _, m := range found {
			kind, token, ok := parseQueueSubject(m.Subject)
			if !ok || kind != kindJob {
				continue
			}
			key, err := ingest.ParseToken(token)
			_, id, stored := strings.Cut(m.ID, "/")
			if err == nil && stored {
				waiting = append(waiting, Finished{Key: key, DedupeID: id, Seq: m.Seq, Accepted: m.At, waits: true})
			}
		}
		q.Recall(waiting)
	}
	return nil
}
