package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"

	"github.com/nats-io/nats.go/jetstream"
)

// Times of a Teller.
const (
	joined     = 50 * time.Millisecond // what is found within this time is one write
	writeWait  = 2 * time.Second       // for one write
	writeRetry = 250 * time.Millisecond
	mostRetry  = 5 * time.Second // between writes while this process probes by itself
	claimTerm  = 5 * time.Second // how long a claim lasts without a renewal, by the others' clocks
	claimRenew = 1500 * time.Millisecond
	rereadWait = time.Second            // how long the watch may take to show why a write was refused
	claimAgain = 300 * time.Millisecond // how much longer the replica whose probe failed waits than the others
	idle       = time.Hour              // how long run sleeps if there is nothing to do
)

// Teller keeps one api's entry: it writes what this process finds out, puts in force what other replicas write, and
// claims the breaker's probe. The methods of a nil Teller do nothing.
type Teller struct {
	*lane.Lane
	board *Board
	notes *settle.HoldNotes
	wake  chan struct{}
	wants atomic.Int64 // the turn of the breaker that a job here could probe, 0 for none

	// Only the goroutine that writes uses these fields:
	written time.Time // when the entry was written last
	renewed time.Time // when the claim was renewed last
	trouble trouble
}

// trouble says since when the entry cannot be written. The zero trouble says that the last write was stored.
type trouble struct {
	since    time.Time     // when the first write that failed began
	revision uint64        // the revision that the last write that failed should replace
	told     bool          // a log line says so
	reread   time.Time     // when the entry was read again last
	pause    time.Duration // before the next write, if this process probes without a claim; else 0
}

// Join returns the Teller of an api. What the entry says is in force when Join returns.
func (b *Board) Join(l *lane.Lane, notes *settle.HoldNotes) *Teller {
	t := &Teller{Lane: l, board: b, notes: notes, wake: make(chan struct{}, 1)}
	b.mu.Lock()
	b.tellers[l.Name] = t
	b.mu.Unlock()
	t.learn()
	return t
}

// learn puts in force what the entry says.
func (t *Teller) learn() {
	s := t.board.of(t.Name)
	t.Mu.Lock()
	now := t.Now()
	news := t.learnLocked(&s, now)
	t.Mu.Unlock()
	t.announce(&s, news)
	t.look()
}

// learnLocked puts in force what another replica has found, and returns the holds that begin and end.
func (t *Teller) learnLocked(s *sighting, now bucket.Micros) []schedule.HoldChange {
	if s.Session == t.board.Session || s.revision == 0 {
		return nil // this process has written the entry, and knows what it says
	}
	f := s.found
	if f.Held != 0 {
		f.Why += " (learned by " + s.Replica + ")"
	}
	if f.Held > now {
		t.notes.Stored(s.revision)
	}
	return t.Sched.Findings.Learn(f, now)
}

// announce reports what was learned.
func (t *Teller) announce(s *sighting, news []schedule.HoldChange) {
	if len(news) > 0 {
		t.notes.Learned(news, s.Replica)
	}
	t.WakeUp()
}

// sayLost logs that the entry is gone, or older than the one that this process has seen before.
func (t *Teller) sayLost() {
	t.Log.Warn("the shared holds of the api were lost; this replica stores again what it knows")
}

// Look wakes the Teller if there may be something to write, as unsaid says, or if a job of this process could be the
// breaker's probe. turn is the turn of the breaker that the job could probe, 0 if there is no such job. Look does not
// block.
func (t *Teller) Look(unsaid bool, turn int64) {
	switch {
	case t == nil || !unsaid && turn == 0:
		return
	case turn != 0:
		t.wants.Store(turn)
	}
	t.look()
}

func (t *Teller) look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Start begins to write what this process finds out. All calls must have ended before stop is called. stop writes what
// was found out last, and returns when nothing is written any more.
func (t *Teller) Start(ctx context.Context) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx = context.WithoutCancel(ctx)
	stopping, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t.run(ctx, stopping)
		t.end(ctx)
	}()
	return func() {
		close(stopping)
		<-ended
	}
}

func (t *Teller) run(ctx context.Context, stopping <-chan struct{}) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		timer.Reset(t.act(ctx))
		select {
		case <-t.wake:
		case <-timer.C:
		case <-stopping:
			return
		}
	}
}

// act writes the entry if there is reason to, and returns when to look again.
func (t *Teller) act(ctx context.Context) (wait time.Duration) {
	s, now, pause := t.board.of(t.Name), t.Now(), joined
	if !t.trouble.since.IsZero() && s.revision == t.trouble.revision {
		pause = max(writeRetry, t.trouble.pause)
	}
	if wait = pause - time.Since(t.written); wait > 0 {
		return wait
	}
	t.Mu.Lock()
	news := t.learnLocked(&s, now)
	f, more := t.Sched.Findings.Tell(s.found, now)
	has := t.Sched.Findings.HasClaim()
	turn, from := t.Sched.Findings.AwaitsProbe()
	t.Mu.Unlock()
	t.announce(&s, news)

	next, mine, claims := s.entry, s.Probing == t.board.Session, false
	next.put(&f)
	switch {
	case f.Turn > s.Turn:
		next.Turned, next.Probing = t.board.Session, ""
	case more:
	case has && !mine: // this process was silent for too long, and another replica has the claim
		t.Update(func(s *schedule.Schedule) { s.Findings.LoseClaim() })
		return joined
	case has:
		if wait = claimRenew - time.Since(t.renewed); wait > 0 {
			return wait
		}
	case mine: // the claim was not used
		next.Probing = ""
	case turn != 0 && turn == t.wants.Load():
		if wait = t.claimable(&s, now.Until(from)); wait > 0 {
			if s.Probing != "" {
				t.endTrouble() // another replica probes
			}
			return wait
		}
		next.Probing, claims = t.board.Session, true
	default:
		t.endTrouble()
		return idle
	}
	if !t.write(ctx, &s, next, f) {
		return t.endure(ctx, &s, f.Turn > s.Turn || turn != 0 && turn == t.wants.Load())
	}
	t.Mu.Lock()
	t.Sched.Findings.Told(f)
	if claims {
		t.Sched.Findings.Claim(turn, t.Now())
		t.wants.CompareAndSwap(turn, 0) // before a job here can ask for a further claim
	}
	t.Mu.Unlock()
	t.WakeUp()
	if claims || has {
		t.renewed = time.Now()
	}
	if claims {
		t.Log.Info("this replica tries whether the api answers again")
	}
	return joined
}

// endTrouble ends the trouble without a write, because this process has nothing to write any more.
func (t *Teller) endTrouble() {
	if t.trouble != (trouble{}) {
		t.trouble = trouble{}
		t.Update(func(s *schedule.Schedule) { s.Findings.ProbeTogether() })
	}
}

// endure handles a failed write that should have replaced s, and returns how long to wait before the next. probes says
// that the breaker's probe needs the write.
func (t *Teller) endure(ctx context.Context, s *sighting, probes bool) (wait time.Duration) {
	lasts := time.Since(t.trouble.since)
	if probes && lasts >= claimTerm {
		alone := false
		t.Update(func(s *schedule.Schedule) { alone = s.Findings.ProbeAlone() })
		if alone {
			t.Log.Warn("the state of the breaker cannot be stored for the other replicas; this replica tries the api by itself")
		}
		t.trouble.pause = min(2*max(t.trouble.pause, writeRetry), mostRetry)
	}
	if lasts >= rereadWait && time.Since(t.trouble.reread) >= rereadWait {
		t.trouble.reread = time.Now()
		_ = t.board.reread(ctx, t.Name, s) // if it fails, so does the next write
	}
	return max(writeRetry, t.trouble.pause)
}

// claimable returns how long this process must wait before it may claim the probe. rest is how long the breaker still
// stays open.
func (t *Teller) claimable(s *sighting, rest time.Duration) time.Duration {
	if s.Probing != "" {
		rest = max(rest, claimTerm-time.Since(s.claimed))
	}
	if s.Turned == t.board.Session && t.board.Replicas() > 1 {
		rest += claimAgain
	}
	return rest
}

// write replaces s by an entry that says f, and reports whether it is stored. If another replica was faster, the write
// is refused, and the watch shows that replica's entry.
func (t *Teller) write(ctx context.Context, s *sighting, next entry, f schedule.Finding) bool {
	t.written = time.Now()
	next.Replica, next.Session = t.board.Instance, t.board.Session
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	revision, err := t.board.Control.Update(ctx, keyOf(t.Name), next.encode(), s.revision)
	var api *jetstream.APIError
	switch {
	case err == nil:
		t.trouble = trouble{}
		t.board.wrote(t.Name, sighting{entry: next, revision: revision, found: f, received: time.Now(), claimed: t.written})
		if f.Held > f.At {
			t.notes.Stored(revision)
		}
		return true
	case errors.As(err, &api) && (api.ErrorCode == stream.CodeWrongLastSeq || api.ErrorCode == stream.CodeWrongLastSeqConst):
		if t.trouble.since.IsZero() || t.trouble.revision != s.revision {
			t.trouble.since, t.trouble.revision = t.written, s.revision
		}
		return false
	case t.trouble.since.IsZero():
		t.trouble.since = t.written
	}
	t.trouble.revision = s.revision
	if !t.trouble.told {
		t.trouble.told = true
		t.Log.Warn("the other replicas could not be told what this one has learned of the api; trying again", "err", err)
	}
	return false
}

// end writes what was found out last, and gives the claim back. If another replica has written the entry meanwhile, end
// reads it from the leader, because the watch may have ended.
func (t *Teller) end(ctx context.Context) {
	for range 2 {
		s, now := t.board.of(t.Name), t.Now()
		t.Mu.Lock()
		t.learnLocked(&s, now)
		f, more := t.Sched.Findings.Tell(s.found, now)
		t.Mu.Unlock()
		next := s.entry
		next.put(&f)
		if f.Turn > s.Turn {
			next.Turned, next.Probing = t.board.Session, ""
		}
		if s.Probing == t.board.Session {
			next.Probing, more = "", true
		}
		if !more || t.write(ctx, &s, next, f) || t.board.reread(ctx, t.Name, &s) != nil {
			return
		}
	}
}
