package lane

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// An intent says that a job may be called from now on. It is stored before the call, and deleted when the call's
// outcome is stored. So after a crash the intents show which jobs may have been called.

// IntentMark is one stored message of intents. It may be deleted when no job needs it any more.
type IntentMark struct {
	Seq   uint64
	Users int
}

// FoundIntent is an intent that was found in a stream.
type FoundIntent struct {
	queue.Intent
	Mark   *IntentMark
	Stored time.Time
}

// IntentBatch stores the intents of a partition's jobs. One message holds the intents of all jobs that want one at the
// same time.
type IntentBatch struct {
	part    *Owned
	turn    chan struct{} // full while a job's goroutine stores a message of intents
	waiting []intending   // jobs that want an intent; the lane's lock guards it
	Refused func()        // called when the stream has refused intents because it does not hold this owner's epoch
}

// Intend stores a job's intent. One message holds it and those of all other jobs of the partition that want one now. If
// a message of intents is being stored, the job waits, and its intent goes into the next message. Intend blocks until
// the intent is stored, and reports whether it is. If not, the job rests.
func (b *IntentBatch) Intend(j *Job) bool {
	stored := make(chan bool, 1)
	b.part.W.Mu.Lock()
	if j.Leads != nil {
		for _, m := range j.Leads.Jobs {
			if m != j {
				b.waiting = append(b.waiting, intending{m, nil})
			}
		}
	}
	b.waiting = append(b.waiting, intending{j, stored})
	b.part.W.Mu.Unlock()
	for len(stored) == 0 {
		select {
		case b.turn <- struct{}{}:
			if len(stored) == 0 {
				b.storeNext()
			}
			<-b.turn
		case is := <-stored:
			return is
		}
	}
	return <-stored
}

// intending is a job that wants an intent. stored receives whether the intent is stored. It is nil for a member of a
// pack; the member's leader follows it in the list.
type intending struct {
	t      *Job
	stored chan<- bool
}

// mostIntents bounds the intents of one message. The intents of a pack always stay together in one message.
const mostIntents = 512

// intentBytes returns the most bytes that the intent of a call of an api can have, including the comma behind it.
func intentBytes(api *httpcall.API) int64 {
	const digits = 1 << 53 // of a sequence, a time, or a price
	i := queue.Intent{
		Seq: digits, Call: math.MaxInt32, Deaths: math.MaxInt8, Timeout: api.Timeout, Price: digits, Target: api.Target(),
		Accepted: digits, Epoch: digits, KeySum: math.MaxUint64, Entry: math.MaxUint64,
	}
	j := Job{Terms: &Terms{API: api}}
	if api.Pack != nil {
		i.Pack = &queue.Pack{ID: ingest.NewID(), Place: api.Pack.Jobs, Of: api.Pack.Jobs}
		j.In = i.Pack
	}
	i.Idempotency = j.Identity(time.Unix(digits, 0))
	data, err := json.Marshal(i)
	if err != nil {
		panic("dispatcher: an intent that JSON cannot carry: " + err.Error())
	}
	return int64(len(data)) + 1
}

// nextLocked takes those waiting jobs whose intents go in the next message. The message has at most most bytes.
// nextLocked keeps the jobs of a pack together.
func (b *IntentBatch) nextLocked(most int64) (wanted []intending) {
	n, size := 0, int64(0)
	for i, one := range b.waiting {
		size += one.t.Terms.Intent
		if one.stored == nil {
			continue
		}
		if n > 0 && (i >= mostIntents || size > most) {
			break
		}
		n = i + 1
	}
	wanted, b.waiting = b.waiting[:n:n], b.waiting[n:]
	if len(b.waiting) == 0 {
		b.waiting = nil
	}
	return wanted
}

// storeNext stores the next message of intents. A job must wait, and the caller must have the turn.
func (b *IntentBatch) storeNext() {
	w := b.part.W
	w.Mu.Lock()
	wanted := b.nextLocked(b.part.Bucket.MostMarkers())
	intents := make([]queue.Intent, len(wanted))
	for i, one := range wanted {
		j := one.t
		intents[i] = j.Intent(j.Calls + 1)
		j.Entry = w.Env.Recorder.Prepare(b.part.CallOf(&intents[i], b.part.Markers.Epoch()), j.Entry)
		intents[i].Entry = j.Entry.ID()
	}
	w.Mu.Unlock()
	seq, err := b.part.Markers.Intend(intents...)
	if err == nil {
		fault.Pass(fault.IntentStored)
	}
	w.Update(func(s *schedule.Schedule) {
		mark := &IntentMark{Seq: seq, Users: len(wanted)}
		for i, one := range wanted {
			if j := one.t; err == nil {
				j.Announced.Call, j.Announced.By, j.Announced.As = intents[i].Call, j.Terms, intents[i].Idempotency
				j.Announced.Marks = append(j.Announced.Marks, mark)
				if one.stored != nil {
					w.MadeLocked(j)
				}
			} else if j.Entry.LetGo(); one.stored != nil {
				j.DisbandLocked()
				j.Terms.Call.Conns.Release()
				s.Unstage(j.Job)
				w.RestLocked(j, w.Now().Add(LoadRetry))
			}
		}
	})
	if err != nil {
		b.intentFailed(err)
	}
	for _, one := range wanted {
		if one.stored != nil {
			one.stored <- err == nil
		}
	}
}

// Intent returns the intent of one call of the job. If this intent was stored before, the new one keeps the identity of
// the key, because the call may have begun long ago. But if the job is in another pack now, this is another call with
// another key.
func (j *Job) Intent(call int) queue.Intent {
	api := j.Terms.API
	identity := j.Identity(j.Part.W.WallNow())
	if j.Announced.Call == call && (j.In == nil || deadletter.SameKey(j.Announced.As, identity)) {
		identity = j.Announced.As
	}
	return queue.Intent{
		Seq: j.Seq, Call: call, Deaths: j.Deaths,
		Idempotency: identity, Timeout: api.Timeout, Price: j.Bill.Reserved, Target: api.Target(),
		Accepted: j.Accepted, KeySum: queue.KeySum(j.Queue.Key), Entry: j.Entry.ID(),
		Pack: j.In,
	}
}

// intentFailed handles a failed write of intents. If the stream refused the write because it does not hold this owner's
// epoch, intentFailed calls Refused. Otherwise it logs the failure.
func (b *IntentBatch) intentFailed(err error) {
	if errors.Is(err, queue.ErrFenced) {
		b.Refused()
		return
	}
	b.part.W.Log.Error("could not store an intent; its calls wait", "err", err)
}

// DropIntentsLocked releases a job's intents. It deletes each message that no other job needs.
func (j *Job) DropIntentsLocked() {
	j.Announced.drop(j.Part)
	j.Entry.LetGo()
}

// Announced is what the intents of one job say that are stored in its partition's stream. The lane's lock guards it.
type Announced struct {
	Marks []*IntentMark // their messages
	Call  int           // the number of the call that the newest one announces, 0 for none
	By    *Terms        // the terms stored in the newest one
	As    string        // the identity of the key that its call carries
}

// drop forgets the intents, and deletes each message that no other job needs.
func (a *Announced) drop(p *Owned) {
	for _, mark := range a.Marks {
		if mark.Users--; mark.Users == 0 && !p.Lost.Load() {
			p.Bucket.Discard(mark.Seq)
		}
	}
	*a = Announced{}
}
