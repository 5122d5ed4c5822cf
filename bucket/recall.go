package bucket

import (
	"cmp"
	"time"

	"weir/ingest"
)

// Finished is a job that has ended. JetStream forgets the ids of deleted messages when its server restarts; whoever ended
// the job does not, nor does the ledger, and a producer that never got its receipt asks again.
type Finished struct {
	Key, DedupeID string
	Seq           uint64
	Until         time.Time // how long its id is known
	waits         bool      // it has not ended: only its id is forgotten
}

// Recall makes the queue know finished jobs by their ids. It is safe for concurrent use.
func (q *Queue) Recall(jobs []Finished) {
	now := time.Now()
	for _, f := range jobs {
		p := q.Partition(f.Key)
		p.mu.Lock()
		before := p.endings.forgot
		p.endings.add(ingest.StoredID(f.Key, f.DedupeID), ending{f.Seq, MicrosOf(f.Until), f.waits}, MicrosOf(now))
		forgot := p.endings.forgot && !before
		p.mu.Unlock()
		if forgot && q.log != nil {
			q.log.Warn("more jobs have ended than there is room for their ids: one that is sent again after a restart of its server may be called again; "+
				"lower dedupe, or begin the api with more partitions", "api", q.api, "stream", p.name, "ids", SureIDs)
		}
	}
}

// Ended makes the queue know a job that its owner has brought to an end, where the server may restart without this
// process. It must be called before Finish.
func (q *Queue) Ended(f Finished) {
	if q.others {
		q.Recall([]Finished{f})
	}
}

// Twin reports whether a message that was just read is a second submission of a job that has ended, which the stream took
// for a new one because its server had forgotten the id, or that job itself, come back with a server that lost its
// deletion. Calling it would call the job twice.
func (p *Partition) Twin(e Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := MicrosOf(e.Time)
	first, ok := p.endings.find(e.Header.Get(ingest.HeaderMsgID), at)
	return ok && (first.seq != e.Seq || !first.waits)
}

// SureIDs is of how many finished jobs a partition knows the ids at least, at 50 to 90 bytes each: 3,500 a second at a dedupe of
// ten minutes. At twice as many the older half is forgotten, and the log says so.
const SureIDs = 1 << 21

// endings are finished jobs by their message ids, in two generations: the old one goes when all of it is past. Its owner
// locks it.
type endings struct {
	seeds                keySeeds
	young, old           map[keyID]ending
	youngUntil, oldUntil Micros // until when one of each is known
	sure                 int    // 0 for SureIDs
	forgot               bool   // some have been forgotten before their time
}

type ending struct {
	seq   uint64
	until Micros
	waits bool
}

func (x *endings) add(id string, e ending, now Micros) {
	if e.until <= now {
		return
	}
	x.turn(now)
	if x.young == nil {
		x.young = map[keyID]ending{}
	}
	x.young[x.seeds.id(id)] = e
	x.youngUntil = max(x.youngUntil, e.until)
}

// find looks for a job that is known at a time.
func (x *endings) find(id string, at Micros) (ending, bool) {
	if len(x.young)+len(x.old) == 0 {
		return ending{}, false
	}
	k := x.seeds.id(id)
	e, ok := x.young[k]
	if !ok {
		e, ok = x.old[k]
	}
	return e, ok && at < e.until
}

func (x *endings) turn(now Micros) {
	if now < x.oldUntil && len(x.young) < cmp.Or(x.sure, SureIDs) {
		return
	}
	x.forgot = x.forgot || now < x.oldUntil
	x.old, x.oldUntil = x.young, x.youngUntil
	x.young, x.youngUntil = nil, 0
}
