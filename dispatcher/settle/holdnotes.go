package settle

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// HoldNotes reports holds that begin and end, and stores marks of long ones.
type HoldNotes struct {
	*lane.Lane
	Marks   map[string]lane.HoldMark // the stored marks, by key, "" for the api; the lane's lock guards it
	storing map[string]lane.HoldMark // by key, the longest mark that is being stored; the lane's lock guards it
	// stored is the revision of the entry by which the replicas share the api's hold (dispatcher/fleet), 0 for none.
	stored atomic.Uint64
}

// NewHoldNotes returns notes without marks.
func NewHoldNotes(l *lane.Lane) *HoldNotes {
	return &HoldNotes{Lane: l, Marks: map[string]lane.HoldMark{}, storing: map[string]lane.HoldMark{}}
}

// Stored notes the revision of the entry by which the replicas share the api's hold. When the hold ends, every replica
// sends an event whose id has this revision, so the stream stores the event once.
func (w *HoldNotes) Stored(revision uint64) { w.stored.Store(revision) }

// Learned logs holds that begin or end because of what another replica has found out. That replica sends the events.
func (w *HoldNotes) Learned(all []schedule.HoldChange, replica string) {
	for _, c := range all {
		attrs := []any{"replica", replica, "reason", c.Why}
		if c.Until != 0 {
			w.Log.Info("held, as another replica is", append(attrs, "until", c.Until.Time())...)
			continue
		}
		w.Log.Info("resumed, as another replica is", attrs...)
		w.Mu.Lock()
		w.dropDenialsLocked()
		w.Mu.Unlock()
	}
}

// lastingHold is the shortest hold that is stored. A restart takes about as long.
const lastingHold = 3 * time.Second

// Held announces holds that have begun or ended, and stores a hold that no job's retry mark records. It blocks until the
// hold is stored.
func (w *HoldNotes) Held(p *lane.Owned, hold schedule.HoldChange, news []schedule.HoldChange) {
	w.AnnounceHolds(news)
	w.storeHold(p, hold)
}

// keepHold stores a hold in the partition, so that a restart or another owner finds it. It ignores short holds. It does
// not block. If a crash comes before the mark is stored, the hold is lost: one call is then made and pushed back.
func (w *HoldNotes) keepHold(p *lane.Owned, n schedule.HoldChange) {
	if store := w.markOf(p, n); store != nil {
		w.Running.Go(store)
	}
}

// storeHold is keepHold, but blocks until the mark is stored.
func (w *HoldNotes) storeHold(p *lane.Owned, n schedule.HoldChange) {
	if store := w.markOf(p, n); store != nil {
		store()
	}
}

// markOf returns what stores the mark of a hold, nil if the hold needs no mark.
func (w *HoldNotes) markOf(p *lane.Owned, n schedule.HoldChange) (store func()) {
	if !p.MayCall() {
		return nil // the next owner finds out for itself
	}
	w.Mu.Lock()
	key := lane.KeyOf(n.Queue)
	longest := max(w.Marks[key].Until, w.storing[key].Until)
	if n.Until < w.Now().Add(lastingHold) || n.Until < longest.Add(time.Second) {
		w.Mu.Unlock()
		return nil
	}
	m := lane.HoldMark{Part: p, Until: n.Until}
	w.storing[key] = m
	w.Mu.Unlock()
	return func() {
		seq, err := p.Markers.Hold(key, w.WallTime(n.Until), n.Why)
		if err != nil {
			w.Log.Warn("could not store a hold: a restart would forget it", "key", key, "until", n.Until.Time(), "err", err)
		}
		w.Mu.Lock()
		defer w.Mu.Unlock()
		if w.storing[key] == m {
			delete(w.storing, key)
		}
		if err == nil && w.Partitions[p.Number] == p { // else the mark stays for the partition's next owner
			w.keepLocked(key, lane.HoldMark{Part: p, Seq: seq, Until: n.Until})
		}
	}
}

// keepLocked replaces the mark of a key with a mark that is stored. It discards the new mark and returns false if the
// hold is over, or if the present mark lasts at least as long.
func (w *HoldNotes) keepLocked(key string, m lane.HoldMark) (kept bool) {
	former := w.Marks[key]
	if m.Until <= w.Now() || m.Until <= former.Until {
		m.Discard()
		return false
	}
	former.Discard()
	w.Marks[key] = m
	return true
}

// ForgetPartitionLocked forgets the marks of a partition that is given up. They stay stored for the partition's next
// owner.
func (w *HoldNotes) ForgetPartitionLocked(p *lane.Owned) {
	isOf := func(_ string, m lane.HoldMark) bool { return m.Part == p }
	maps.DeleteFunc(w.Marks, isOf)
	maps.DeleteFunc(w.storing, isOf)
}

// ReplayHoldLocked renews a hold from a mark that was found in the partition. It returns the held queue. It returns nil
// if the mark holds the api, if the hold is over, or if a known hold lasts as long.
func (w *HoldNotes) ReplayHoldLocked(p *lane.Owned, mark queue.RetryMark, seq uint64) *schedule.KeyQueue {
	m := lane.HoldMark{Part: p, Seq: seq, Until: w.HeldAtMostLocked(mark.NotBefore)}
	if !w.keepLocked(mark.Key, m) {
		return nil
	}
	var q *schedule.KeyQueue
	if mark.Key != "" {
		q = w.Sched.Queue(mark.Key, &p.Partition)
	}
	w.Sched.Holds.Hold(q, m.Until, mark.Reason)
	return q
}

// ForgetHold drops the mark of a hold that is over.
func (w *HoldNotes) ForgetHold(q *schedule.KeyQueue) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	key := lane.KeyOf(q)
	if m := w.Marks[key]; m.Until <= w.Now() {
		m.Discard()
		delete(w.Marks, key)
	}
}

// keepDenial stores in each of the api's partitions that the api denies weir. So a restart or another owner begins with
// one call, and not with one call of each key. keepDenial does not block. If a crash comes before the mark is stored,
// the denial is lost: some calls are then made and denied.
func (w *HoldNotes) keepDenial(until bucket.Micros, why string) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, p := range w.Partitions {
		if p == nil || p.Markers == nil || p.Lost.Load() || !p.MayCall() {
			continue // the next owner finds out for itself
		}
		if p.Denial.Seq != 0 && until < p.Denial.Until.Add(time.Second) {
			continue // the stored mark says as much
		}
		w.Running.Go(func() {
			seq, err := p.Markers.Deny(w.WallTime(until), why)
			if err != nil {
				w.Log.Warn("could not store that the api denies weir's access: a restart would forget it", "stream", p.Bucket.Name(), "err", err)
				return
			}
			w.Mu.Lock()
			defer w.Mu.Unlock()
			w.markDenialLocked(lane.HoldMark{Part: p, Seq: seq, Until: until})
		})
	}
}

// markDenialLocked keeps a stored mark of a denial. The partition keeps the latest such mark as long as the api denies
// weir.
func (w *HoldNotes) markDenialLocked(m lane.HoldMark) {
	former := m.Part.Denial
	switch {
	case !w.Sched.At(w.Now()).Denied(), m.Until < former.Until:
		m.Discard()
		return
	}
	former.Discard()
	m.Part.Denial = m
}

// ReplayDenialLocked restores a denial from a mark that was found in the partition.
func (w *HoldNotes) ReplayDenialLocked(p *lane.Owned, mark queue.RetryMark, e queue.Entry) {
	until := w.HeldAtMostLocked(mark.NotBefore)
	w.Sched.Findings.DenyAgain(until, bucket.MicrosOf(e.Time), w.Now(), mark.Reason)
	w.markDenialLocked(lane.HoldMark{Part: p, Seq: e.Seq, Until: until})
}

// dropDenialsLocked deletes the marks of denials if the api accepts weir again.
func (w *HoldNotes) dropDenialsLocked() {
	if w.Sched.At(w.Now()).Denied() {
		return
	}
	for _, p := range w.Partitions {
		if p != nil && p.Denial.Seq != 0 {
			p.Denial.Discard()
			p.Denial = lane.HoldMark{}
		}
	}
}

// AnnounceHolds logs holds that have begun or ended, and sends their events.
func (w *HoldNotes) AnnounceHolds(all []schedule.HoldChange) {
	for _, c := range all {
		w.TellHold(c)
	}
	if len(all) > 0 {
		w.WakeUp()
	}
}

// TellHold logs a hold that has begun or ended, and sends its event.
func (w *HoldNotes) TellHold(c schedule.HoldChange) { w.tell(c, "") }

// TellEnd logs that the time of a hold is over, and sends its event. q is nil for a hold of the api. shared says
// whether the replicas share the api's hold that ends first: all replicas then give its event the same id. The end of
// any other hold needs an id of its own, or the stream would take its event for a duplicate.
func (w *HoldNotes) TellEnd(q *schedule.KeyQueue, shared bool) {
	id := ""
	if q == nil && shared {
		if revision := w.stored.Swap(0); revision != 0 {
			id = fmt.Sprintf("hold.%s.%d.over", w.Name, revision)
		}
	}
	w.tell(schedule.HoldChange{Queue: q, Why: "the hold is over"}, id)
}

// tell is TellHold for an event with this id. If id is "", the event gets a new one.
func (w *HoldNotes) tell(c schedule.HoldChange, id string) {
	data := deadletter.HoldData{Why: c.Why}
	e := deadletter.Event{Type: deadletter.ResumedEvent, API: w.Name, Key: lane.KeyOf(c.Queue), ID: id}
	attrs := []any{}
	if e.Key != "" {
		attrs = append(attrs, "key", e.Key)
	}
	if c.Until != 0 {
		at := c.Until.Time()
		e.Type, data.Until = deadletter.HeldEvent, &at
		attrs = append(attrs, "until", at)
	}
	if c.Why != "" {
		attrs = append(attrs, "reason", c.Why)
	}
	e.Data = data
	w.Log.Info(string(e.Type), attrs...)
	w.Env.Letters.Send(e, func(err error) {
		if err != nil {
			w.Log.Warn("could not store an event", "err", err)
		}
	})
}
