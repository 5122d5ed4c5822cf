package queue

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/internal/keyhash"
	"weir/bucket/stream"
	"weir/ingest"
)

// Finished is a job that has ended. JetStream forgets the ids of deleted messages when its server restarts. The owner
// that ended the job and the ledger remember them, because a producer that received no receipt may submit its job
// again.
type Finished struct {
	Key, DedupeID string
	Seq           uint64
	Accepted      time.Time // by its stream; from then on its id is known for as long as Dedupe says
	waits         bool      // the job has not ended, but its restored stream has forgotten its id
}

// AddFinished makes the queue know the ids of finished jobs. It is safe for concurrent use.
func (q *Queue) AddFinished(jobs []Finished) {
	now := time.Now()
	since := bucket.MicrosOf(now.Add(-q.dedupe.Reach(now)))
	for _, f := range jobs {
		p := q.Partition(f.Key)
		ended := finishedID{f.Seq, bucket.MicrosOf(f.Accepted), f.waits}
		forgot := p.finishedIDs.add(ingest.StoredID(f.Key, f.DedupeID), ended, since)
		if forgot && q.log != nil {
			q.log.Warn("more jobs have ended than there is room for their ids: one that is sent again after a restart of its server may be called again; "+
				"lower dedupe, or begin the api with more partitions", "api", q.api, "stream", p.source.name, "ids", SureIDs)
		}
	}
}

// Ended makes the queue know the id of a job that its owner has ended. It does nothing unless other processes use the
// queue: only then may the server restart without this process. It must be called before Finish.
func (q *Queue) Ended(f Finished) {
	if q.others {
		q.AddFinished([]Finished{f})
	}
}

// Duplicate says how a message that was just read relates to an ended job with its id. It returns Same in two cases:
// the stream took the message for a new job because its server had forgotten the id, or the message is the ended job
// itself, because its server lost the deletion. If the caller called such a message, the job would be called twice.
// Duplicate returns Another if the message is unrelated to any ended job.
func (p *Partition) Duplicate(e Entry) Likeness {
	first, ok := p.finishedIDs.find(e.Header.Get(ingest.HeaderMsgID))
	at := bucket.MicrosOf(e.Time)
	switch {
	case !ok || first.seq == e.Seq && first.waits:
		return Another
	case first.seq == e.Seq && first.accepted == at:
		return Same
	}
	return p.queue.dedupe.Judge(first.accepted, at)
}

// SureIDs is how many ids of finished jobs a partition knows at least, at 50 to 90 bytes each. That is enough for 3,500
// jobs a second at a dedupe of ten minutes. If there are twice as many, the partition forgets the older half, and the
// log says so.
const SureIDs = 1 << 21

// finishedIDs are finished jobs by their message ids, in two generations. The old generation is dropped when none of
// its jobs matters any more. It is safe for concurrent use.
type finishedIDs struct {
	mu                 sync.Mutex // guards what follows
	seeds              keyhash.Seeds
	young, old         map[keyhash.ID]finishedID
	youngLast, oldLast bucket.Micros // when the newest job of each generation was accepted
	sure               int           // 0 for SureIDs
	forgot             bool          // some jobs were dropped while they still mattered
}

type finishedID struct {
	seq      uint64
	accepted bucket.Micros
	waits    bool
}

// add notes a job, and reports whether jobs were dropped for the first time while they still mattered. Jobs accepted
// before since no longer matter.
func (x *finishedIDs) add(id string, e finishedID, since bucket.Micros) (forgot bool) {
	if e.accepted <= since {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.forgot
	x.turn(since)
	if x.young == nil {
		x.young = map[keyhash.ID]finishedID{}
	}
	k := x.seeds.ID(id)
	if later, ok := x.at(k); ok && later.accepted > e.accepted {
		return x.forgot && !before // the ledger holds ends in the order they happened
	}
	x.young[k] = e
	x.youngLast = max(x.youngLast, e.accepted)
	return x.forgot && !before
}

// find returns the newest job that had an id.
func (x *finishedIDs) find(id string) (finishedID, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.young)+len(x.old) == 0 {
		return finishedID{}, false
	}
	return x.at(x.seeds.ID(id))
}

func (x *finishedIDs) at(k keyhash.ID) (finishedID, bool) {
	e, ok := x.young[k]
	if !ok {
		e, ok = x.old[k]
	}
	return e, ok
}

func (x *finishedIDs) turn(since bucket.Micros) {
	if since < x.oldLast && len(x.young) < cmp.Or(x.sure, SureIDs) {
		return
	}
	x.forgot = x.forgot || since < x.oldLast
	x.old, x.oldLast = x.young, x.youngLast
	x.young, x.youngLast = nil, 0
}

// Remember makes the queue know the ids of the jobs that wait in it, because restored streams have forgotten them. It
// must be called before the intake starts.
func (q *Queue) Remember(ctx context.Context) error {
	now := time.Now()
	for _, p := range q.partitions {
		found, err := stream.Remember(ctx, stream.Newest{JetStream: q.js, Stream: p.source.name, Since: now.Add(-q.dedupe.Reach(now))}, q.log)
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
		q.AddFinished(waiting)
	}
	return nil
}
