package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"weir/ingest"
)

// Bounds of a redrive.
const (
	keysAtOnce  = 512 // keys whose letters are redriven at once, one letter of each key
	answerWait  = 30 * time.Second
	storeTries  = 5 // for one letter, while the intake answers 503
	storePause  = time.Second
	deleteTries = 3
)

// The errors that end a redrive early. Letters that it has not reached stay as they were.
var (
	ErrNobody     = errors.New("no replica runs redrives")
	ErrUnanswered = errors.New("the intake did not answer, so it may have accepted the job; the letter stays, and the next redrive finds out")
	ErrTerms      = errors.New("the configuration has changed meanwhile")
	ErrEdit       = errors.New("the letter stays: the edited job was refused")
	ErrRightLost  = errors.New("another process may redrive or purge by now")
)

// letterError reports that a letter cannot be redriven. Trying again does not help.
type letterError struct {
	seq uint64
	err error
}

// Error implements error.
func (e *letterError) Error() string { return fmt.Sprintf("letter %d: %v", e.seq, e.err) }

// Unwrap returns the reason.
func (e *letterError) Unwrap() error { return e.err }

// Tally counts what a redrive did.
type Tally struct {
	Redriven   int          `json:"redriven"`      // the queue took the job: letter deleted
	Known      int          `json:"known_already"` // the queue had the job already: letter deleted
	Overflowed int          `json:"overflowed"`    // refused with 429: a new letter replaces the old one
	Refused    int          `json:"refused"`       // refused otherwise: the same
	Settled    int          `json:"settled"`       // the job was redriven before: letter deleted
	Skipped    map[Skip]int `json:"skipped"`       // left alone
	Left       int          `json:"not_deleted"`   // job redriven, letter not deleted; the next redrive deletes it
}

// Done returns how many letters the redrive is done with.
func (t *Tally) Done() int {
	n := t.Redriven + t.Known + t.Overflowed + t.Refused + t.Settled + t.Left
	for _, skipped := range t.Skipped {
		n += skipped
	}
	return n
}

// clone returns a copy that shares nothing with t.
func (t *Tally) clone() Tally {
	c := *t
	c.Skipped = maps.Clone(t.Skipped)
	if c.Skipped == nil {
		c.Skipped = map[Skip]int{}
	}
	return c
}

// run is one execution of a redrive.
type run struct {
	*Redrive

	pace     pace
	deletes  chan struct{} // bounds the concurrent deletions
	mu       sync.Mutex    // guards what follows
	tally    Tally
	stayed   map[Skip]int // of the current chunk: a process that continues counts them again
	stayLeft int          // of the current chunk: letters that could not be deleted
}

// Run redrives the letters that Plan found or, if Plan was not called, those of the scope. It takes the letters of one
// key one after another, by their sequences. It publishes each letter, and deletes it when the intake has answered. Run
// ends early if ctx ends or nothing can be stored. The tally always counts everything done so far.
func (r *Redrive) Run(ctx context.Context) (*Tally, error) {
	x := &run{Redrive: r, tally: r.opts.Before.clone(), deletes: make(chan struct{}, deletesAtOnce), stayed: map[Skip]int{}}
	x.pace.every, x.pace.next = r.opts.every(), r.opts.NotBefore
	for next := uint64(0); ; {
		if err := r.lookUp(ctx, next); err != nil {
			return &x.tally, err
		}
		walk := r.scope.between(next, r.lookedUp).Walk(Whole)
		walk.most = x.pace.inOneSecond()
		if err := x.window(ctx, walk); err != nil {
			x.takeBack()
			return &x.tally, err
		}
		if next = r.lookedUp; next == maxSeq {
			return &x.tally, nil
		}
	}
}

// window redrives the letters of one look-up, chunk by chunk.
func (x *run) window(ctx context.Context, walk *Walk) error {
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil || len(chunk) == 0 {
			return err
		}
		if err := x.chunk(ctx, chunk); err != nil {
			return err
		}
		if err := x.passed(ctx, walk); err != nil {
			return err
		}
	}
}

// passed reports to Passed that all letters of a chunk are done.
func (x *run) passed(ctx context.Context, walk *Walk) error {
	clear(x.stayed)
	x.stayLeft = 0
	if x.opts.Passed == nil {
		return nil
	}
	return x.opts.Passed(ctx, Passed{Next: walk.next, Paced: x.pace.due(), Tally: x.tally})
}

// takeBack subtracts from the tally the letters of an unfinished chunk that stay, because a process that continues
// counts them again.
func (x *run) takeBack() {
	if x.opts.Passed == nil {
		return // no process will continue
	}
	for why, n := range x.stayed {
		if x.tally.Skipped[why] -= n; x.tally.Skipped[why] == 0 {
			delete(x.tally.Skipped, why)
		}
	}
	x.tally.Left -= x.stayLeft
}

func (x *run) chunk(ctx context.Context, chunk []Kept) error {
	var order []jobKey
	byKey := map[jobKey][]*Kept{}
	for i := range chunk {
		k := &chunk[i]
		x.address(k)
		name := jobKey{k.API, k.Key}
		if byKey[name] == nil {
			order = append(order, name)
		}
		byKey[name] = append(byKey[name], k)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(keysAtOnce)
	for _, name := range order {
		group.Go(func() error {
			for _, k := range byKey[name] {
				if err := x.letter(ctx, k); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	for range cap(x.deletes) { // waits for deletions under way
		x.deletes <- struct{}{}
	}
	for range cap(x.deletes) {
		<-x.deletes
	}
	return err
}

// letter redrives, deletes or skips one letter.
func (x *run) letter(ctx context.Context, k *Kept) error {
	if err := x.sameTerms(k.API); err != nil {
		return err
	}
	terms, skip := x.exclude(k, time.Now())
	if skip != "" {
		x.skip(skip)
		return nil
	}
	if done, err := x.settled(ctx, k); done || err != nil {
		return err
	}
	if err := x.pace.wait(ctx); err != nil {
		return err
	}
	if err := x.lookAgain(ctx, k); err != nil {
		return err
	}
	if done, err := x.settled(ctx, k); done || err != nil {
		return err
	}
	now := time.Now() // the letter may have waited long for its turn
	if _, skip := x.exclude(k, now); skip != "" {
		x.skip(skip)
		return nil
	}
	if x.opts.Unknown == FoundUnprocessed {
		k.Billed, k.Keyed = NotBilled, ""
	}
	msg := k.resubmission(terms, x.opts.Deadline, now)
	if x.opts.Priority != nil {
		setPriority(msg.Header, *x.opts.Priority)
	}
	if x.opts.Edit != nil {
		if err := x.opts.Edit.CheckKey(k, terms); err != nil {
			return &letterError{k.Seq, fmt.Errorf("%w: %w", ErrEdit, err)}
		}
		x.opts.Edit.apply(msg, k.Seq)
	}
	answer, err := x.publish(ctx, k.Seq, msg)
	var own *letterError
	switch {
	case errors.As(err, &own):
		return err
	case err != nil:
		return fmt.Errorf("letter %d: %w", k.Seq, err)
	}
	return x.settle(ctx, k, answer)
}

// settled handles a letter whose job was submitted or called again since the letter. It returns false if the job was
// not.
func (x *run) settled(ctx context.Context, k *Kept) (done bool, err error) {
	f, newest := x.fate(k)
	if f == superseded {
		other, err := x.opts.Browser.Get(ctx, newest)
		refused := err == nil && refusedEdit(k, &other)
		switch {
		case err != nil && !errors.Is(err, ErrNoLetter):
			return false, err
		case refused && x.opts.Edit != nil:
			x.delete(ctx, newest, func(t *Tally) { t.Refused++ })
			return true, &letterError{k.Seq, fmt.Errorf("%w: %s", ErrEdit, other.Detail)}
		case err != nil, refused, !k.sameRequest(&other.Letter) && !editedFrom(other.Header, k.Seq):
			x.skip(SkipSameID)
			return true, nil
		}
	}
	switch f {
	case leave:
		x.skip(SkipResubmitted)
		return true, nil
	case settled, superseded:
		x.delete(ctx, k.Seq, func(t *Tally) { t.Settled++ })
		return true, nil
	}
	return false, nil
}

// refusedEdit reports whether other is the letter of an edit of k that was refused for good. Both exist if a replica
// died before it deleted the edit's letter.
func refusedEdit(k, other *Kept) bool {
	return other.Origin == "" && other.Reason == Invalid && other.Redrives == k.Redrives+1 &&
		editedFrom(other.Header, k.Seq)
}

func (x *run) skip(why Skip) { x.note(func(t *Tally) { t.Skipped[why]++; x.stayed[why]++ }) }

// publish sends a job to the intake and returns the answer. It waits for the answer even if ctx ends, because the
// letter's fate depends on it.
func (x *run) publish(ctx context.Context, seq uint64, msg *nats.Msg) ([]byte, error) {
	for try := 1; ; try++ {
		if !x.opts.Valid() {
			return nil, ErrRightLost
		}
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
		reply, err := x.opts.Conn.RequestMsgWithContext(waiting, msg)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, ErrNobody
		case errors.Is(err, nats.ErrMaxPayload):
			return nil, &letterError{seq, fmt.Errorf("with its headers it is larger than the server takes: raise the server's max_payload: %w", err)}
		case err != nil:
			return nil, fmt.Errorf("%w (%w)", ErrUnanswered, err)
		}
		var refusal *ingest.Refusal
		if _, err := ingest.ParseAnswer(reply.Data); !errors.As(err, &refusal) || refusal.Code != ingest.Unavailable {
			return reply.Data, nil
		}
		if try == storeTries {
			return nil, fmt.Errorf("after %d tries: %w", try, refusal)
		}
		if err := rest(ctx, storePause); err != nil {
			return nil, err
		}
	}
}

// settle acts on the intake's answer. A refusal has stored a new letter, with one redrive more, so settle deletes the
// old one: a job has one letter. In two cases it deletes the new letter instead: if the api is no longer configured,
// because only the old letter names its api, and if an edited job was refused for good.
func (x *run) settle(ctx context.Context, k *Kept, answer []byte) error {
	receipt, err := ingest.ParseAnswer(answer)
	var refusal *ingest.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.LetterSeq == 0:
		return &letterError{k.Seq, fmt.Errorf("refused without a letter, so that it stays: %w", refusal)}
	case errors.As(err, &refusal) && refusal.Code == ingest.UnknownAPI:
		x.delete(ctx, refusal.LetterSeq, func(t *Tally) { t.Skipped[SkipNoAPI]++ })
	case errors.As(err, &refusal) && refusal.Code != ingest.Throttled && x.opts.Edit != nil:
		x.delete(ctx, refusal.LetterSeq, func(t *Tally) { t.Refused++ })
		return &letterError{k.Seq, fmt.Errorf("%w: %w", ErrEdit, refusal)}
	case errors.As(err, &refusal) && refusal.Code == ingest.Throttled:
		x.delete(ctx, k.Seq, func(t *Tally) { t.Overflowed++ })
	case errors.As(err, &refusal):
		x.delete(ctx, k.Seq, func(t *Tally) { t.Refused++ })
	case err != nil:
		return fmt.Errorf("letter %d: %w: %w", k.Seq, ErrUnanswered, err)
	case receipt.Job != k.JobID:
		return &letterError{k.Seq, fmt.Errorf("of job %s: the answer names job %s: another program than weir answers there", k.JobID, receipt.Job)}
	case receipt.Duplicate:
		x.delete(ctx, k.Seq, func(t *Tally) { t.Known++ })
	default:
		x.delete(ctx, k.Seq, func(t *Tally) { t.Redriven++ })
	}
	return nil
}

// delete deletes a letter in the background and counts it. The next letter of the key need not wait for the deletion.
func (x *run) delete(ctx context.Context, seq uint64, what func(*Tally)) {
	x.deletes <- struct{}{}
	go func() {
		defer func() { <-x.deletes }()
		if err := x.opts.Browser.Delete(context.WithoutCancel(ctx), seq); err != nil {
			what = func(t *Tally) { t.Left++; x.stayLeft++ }
		}
		x.note(what)
	}()
}

func (x *run) note(what func(*Tally)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	what(&x.tally)
	x.opts.Progress(&x.tally)
}

// Delete deletes a letter permanently. It tries three times. It succeeds if the letter is already gone.
func (b *Browser) Delete(ctx context.Context, seq uint64) error {
	for try := 1; ; try++ {
		err := b.stream.DeleteMsg(ctx, seq)
		if err == nil {
			return nil
		}
		if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			if _, err := b.Get(ctx, seq); errors.Is(err, ErrNoLetter) {
				return nil
			}
		}
		if try == deleteTries || ctx.Err() != nil {
			return fmt.Errorf("delete dead letter %d: %w", seq, err)
		}
	}
}
