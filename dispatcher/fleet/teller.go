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
	rereadWait = time.Second            // how long the watch may take to bring the entry that kept a write from being stored
	claimAgain = 300 * time.Millisecond // by how much the replica whose probe failed lets the others go first
	idle       = time.Hour              // how long Run sleeps if there is nothing to do
)

// Teller keeps one api's entry: it writes what this process finds out, puts in force what other replicas write, and
// claims the breaker's probe. The methods of a nil Teller do nothing.
type Teller struct {
	*lane.Lane
	board *Board
	notes *settle.HoldNotes
	wake  chan struct{}
	wants atomic.Int64 // the breaker's turn whose probe a job here could be, 0 for none

	// Of the goroutine that writes:
	written time.Time // when the entry was written last
	renewed time.Time // when the claim was renewed last
	trouble trouble
}

// trouble says that the entry cannot be written. The zero trouble says that the last write was stored.
type trouble struct {
	since    time.Time     // when the first of the writes failed
	revision uint64        // what the last of them had to replace
	told     bool          // a log line says so
	reread   time.Time     // when the entry was read again last
	pause    time.Duration // before the next write, once this process probes by itself; 0 before
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
		return nil // its own write says what it has found or learned before
	}
	f := s.found
	if f.Held != 0 {
		f.Why += " (learned by " + s.Replica + ")"
	}
	if f.Held > now {
		t.notes.Stored(s.revision)
	}
	return t.Sched.Learn(f, now)
}

// announce reports what was learned.
func (t *Teller) announce(s *sighting, news []schedule.HoldChange) {
	if len(news) > 0 {
		t.notes.Learned(news, s.Replica)
	}
	t.WakeUp()
}

// sayLost logs that the entry is older than the one that this process has seen, or gone.
func (t *Teller) sayLost() {
	t.Log.Warn("the shared holds of the api were lost; this replica stores again what it knows")
}

// Look makes the Teller look whether there is something to write, if unsaid says so, and whether a job of this process
// may be the probe of a turn of the breaker, 0 for none. It does not block.
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

// Start begins to write what this process finds out. stop writes the last of it, and returns when nothing is written any
// more. No call may end after that.
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
	f, more := t.Sched.Tell(s.found, now)
	has := t.Sched.HasClaim()
	turn, from := t.Sched.AwaitsProbe()
	t.Mu.Unlock()
	t.announce(&s, news)

	next, mine, claims := s.entry, s.Probing == t.board.Session, false
	next.put(&f)
	switch {
	case f.Turn > s.Turn:
		next.Turned, next.Probing = t.board.Session, ""
	case more:
	case has && !mine: // this process was silent for too long, and another replica has the claim
		t.Update(func(s *schedule.Schedule) { s.LoseClaim() })
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
	t.Sched.Told(f)
	if claims {
		t.Sched.Claim(turn, t.Now())
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

// endTrouble ends a trouble that is over although this process has written nothing since.
func (t *Teller) endTrouble() {
	if t.trouble != (trouble{}) {
		t.trouble = trouble{}
		t.Update((*schedule.Schedule).ProbeTogether)
	}
}

// endure handles a failed write in the place of s, and returns when to try again. probes says that the breaker's probe
// needs the write.
func (t *Teller) endure(ctx context.Context, s *sighting, probes bool) (wait time.Duration) {
	lasts := time.Since(t.trouble.since)
	if probes && lasts >= claimTerm {
		alone := false
		t.Update(func(s *schedule.Schedule) { alone = s.ProbeAlone() })
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

// claimable returns how long this process must wait before it may claim the probe, which may be made after rest.
func (t *Teller) claimable(s *sighting, rest time.Duration) time.Duration {
	if s.Probing != "" {
		rest = max(rest, claimTerm-time.Since(s.claimed))
	}
	if s.Turned == t.board.Session && t.board.Replicas() > 1 {
		rest += claimAgain
	}
	return rest
}

// write stores an entry in the place of s, and reports whether it is stored. If another replica was faster, the watch
// brings its entry.
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

// end writes what was found out last, and gives the claim back. The watch may have ended, so it reads the entry from the
// leader if another replica has written it.
func (t *Teller) end(ctx context.Context) {
	for range 2 {
		s, now := t.board.of(t.Name), t.Now()
		t.Mu.Lock()
		t.learnLocked(&s, now)
		f, more := t.Sched.Tell(s.found, now)
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
