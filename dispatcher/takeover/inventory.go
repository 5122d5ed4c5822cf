package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// No owner watches a stream while weir is stopped. So an owner notes which jobs wait in its partition: every few
// seconds, and once more when it gives the partition up. The next owner compares the note with what it reads. If a
// noted job is not in the stream any more and has no end, it was deleted by hand. It then becomes a letter, or is only
// counted if its key did not fit into the note. The note is in the control bucket, so it survives a purge of the
// stream.
//
// An old note stays true: if a noted job is gone from the stream, either its end was stored since, or it was deleted by
// hand. If an owner is killed, the jobs that came after its last note are not known. The next owner writes no note
// before it has reported the missing jobs.

// Bounds of inventories.
const (
	inventoryEvery    = 5 * time.Second
	inventoryBytes    = 64 << 10  // size of a note while the partition is worked
	lastInventory     = 512 << 10 // size of the note of an owner that gives the partition up
	jobBytes          = 2         // the least that one job takes in a note
	keyBytes          = 7         // the least that a key takes besides its name: "":[1],
	inventoryLeeway   = time.Minute
	inventoryDeadline = 10 * time.Second
)

// inventory is an owner's note of the jobs that waited in its partition.
type inventory struct {
	At     time.Time `json:"at"`
	Born   time.Time `json:"born"` // when the stream was made
	Read   uint64    `json:"read"` // how far the stream had been read
	Count  int       `json:"count"`
	Closed bool      `json:"closed,omitempty"` // the owner gave the partition up: no call was under way
	// Jobs are the sequences of the jobs, by key. Each is written as its distance from the one before it. If the keys
	// did not fit, all sequences are listed under "". If the sequences did not fit either, Jobs is nil.
	Jobs map[string][]uint64 `json:"jobs,omitempty"`
	room int                 // bytes that are left for keys
}

// inventoryKey returns the key of a partition's note in the control bucket.
func inventoryKey(stream string) string { return "queue." + stream }

// errInventory says that a partition's note cannot be read.
var errInventory = errors.New("the note of the jobs that waited cannot be read")

// readInventory reads a partition's note, and returns nil if there is none. It asks the leader of the note's bucket: a
// lagging replica could lack the note.
func readInventory(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, of string) (*inventory, error) {
	if kv == nil {
		return nil, nil
	}
	kept, err := stream.NewestEntry(ctx, nc, kv.Bucket(), inventoryKey(of))
	if err != nil {
		return nil, fmt.Errorf("read which jobs waited in %s: %w", of, err)
	}
	if kept == nil || kept.Deleted() {
		return nil, nil
	}
	inv := &inventory{}
	if err := json.Unmarshal(kept.Data, inv); err != nil {
		return nil, fmt.Errorf("%w: %w", errInventory, err)
	}
	return inv, nil
}

// FirstSeqs returns the first sequence for each stream of an api's queue, by name, if the stream must be created again
// because it was deleted while weir was stopped. The sequence is behind all that were known of the stream. FirstSeqs
// omits streams without a note.
func FirstSeqs(ctx context.Context, nc *nats.Conn, kv jetstream.KeyValue, api string, partitions int) (map[string]uint64, error) {
	first := map[string]uint64{}
	for p := range partitions {
		name := queue.StreamName(api, p)
		inv, err := readInventory(ctx, nc, kv, name)
		if err != nil && !errors.Is(err, errInventory) {
			return nil, err
		}
		if inv != nil {
			first[name] = queue.BehindAll(inv.Read)
		}
	}
	return first, nil
}

// former is the former owner's note, less the jobs that the new owner has read.
type former struct {
	*inventory // nil: there is none
	jobs       map[uint64]string
	found      int // how many jobs up to Read the stream still had
}

// stocktaking finds the jobs that were deleted before a tenure began, and notes which jobs wait, for the next owner.
type stocktaking struct {
	*lane.Owned
	former  former      // it belongs first to the reader, and then to takeStock
	taken   atomic.Bool // the jobs that were deleted before the tenure are reported, so this owner may write notes
	noting  sync.Mutex  // guards what follows
	noted   inventory   // the last note of this owner
	unnoted bool        // the last note could not be stored, and this was logged
}

// beginStocktaking reads the former owner's note.
func (p *stocktaking) beginStocktaking(ctx context.Context) error {
	inv, err := readInventory(ctx, p.W.Env.Conn, p.W.Env.Control, p.Bucket.Name())
	switch {
	case errors.Is(err, errInventory):
		p.TellChange(err.Error() + ": jobs that were deleted by hand while weir was stopped go unnoticed")
		return nil
	case err != nil || inv == nil:
		return err
	}
	p.former.inventory = inv
	if inv.Closed && inv.Count > 0 { // from now on calls may be under way
		open := *inv
		open.Closed = false
		if err := p.storeInventory(ctx, &open, lastInventory); err != nil {
			return err
		}
	}
	p.former.jobs = make(map[uint64]string, inv.Count)
	for key, deltas := range inv.Jobs {
		seq := uint64(0)
		for _, d := range deltas {
			seq += d
			p.former.jobs[seq] = key
		}
	}
	return nil
}

// met notes that the stream still has the job at seq.
func (s *former) met(seq uint64) {
	if s.inventory != nil && seq <= s.Read {
		delete(s.jobs, seq)
		s.found++
	}
}

// takeStock looks in the background for jobs that were deleted by hand while the partition had no owner. It ends when
// they are reported, or the worker stops. Once they are reported, this owner writes notes itself.
func (p *stocktaking) takeStock(ctx context.Context) {
	if p.W.Env.Control == nil {
		return
	}
	p.W.Running.Go(func() {
		ctx, cancel := p.UntilStopping(ctx)
		defer cancel()
		for ctx.Err() == nil && !p.Lost.Load() {
			err := p.tellStock(ctx)
			if err == nil {
				p.taken.Store(true)
			}
			if err == nil || ctx.Err() != nil {
				return
			}
			p.W.Log.Error("could not find out or report whether jobs were deleted from a queue while weir was stopped; trying again", "stream", p.Bucket.Name(), "err", err)
			stream.Sleep(ctx, lane.LoadRetry)
		}
	})
}

// tellStock reports the noted jobs that are gone and have no end. If it fails, the caller may try again.
func (p *stocktaking) tellStock(ctx context.Context) error {
	s := &p.former
	if s.inventory == nil || s.Jobs != nil && len(s.jobs) == 0 || s.Jobs == nil && s.found >= s.Count {
		return nil
	}
	gone, err := p.Bucket.Gone(ctx, slices.Sorted(maps.Keys(s.jobs)), s.Born)
	if err != nil {
		return err
	}
	unnamed := 0
	if s.Jobs == nil && (s.Closed || s.found == 0 && gone.First > s.Read) { // else they may have ended after the note
		unnamed = s.Count - s.found
	}
	found, err := tracesOf(ctx, p.Owned, gone.Seqs, s.At.Add(-inventoryLeeway))
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(gone.Seqs, func(seq uint64) bool { _, ended := found.ended[seq]; return ended || found.told[seq] })
	var letters []*deadletter.Letter
	for _, seq := range lost {
		if l := p.letterOfStock(s.jobs[seq], seq, found); l != nil {
			letters = append(letters, l)
		} else {
			unnamed++
		}
	}
	if len(letters)+unnamed == 0 {
		return nil
	}
	for some := range slices.Chunk(letters, buriedAtOnce) {
		if err := p.buryAll(ctx, some); err != nil {
			return err
		}
	}
	p.tellOfStock(len(letters), unnamed, gone.Another)
	return nil
}

// letterOfStock returns the letter of a job that was deleted while the partition had no owner, nil if its key is
// unknown.
func (p *stocktaking) letterOfStock(key string, seq uint64, found traces) *deadletter.Letter {
	last := found.last[seq]
	if last != nil {
		key = last.Key
	}
	if key == "" {
		return nil
	}
	l := letterOfRemoved(p.Owned, key, seq)
	if !p.former.Closed {
		l.Billed = deadletter.BilledUnknown // its call may have been under way
	}
	if last != nil {
		l.JobID, l.Attempts, l.Status, l.Redrives, l.Accepted = last.Job, last.Attempt, last.Status, last.Redrives, last.Accepted
		l.Billed = l.Billed.Worst(last.Billed)
	}
	return l
}

// buryAll stores letters concurrently. It blocks until all are stored.
func (p *stocktaking) buryAll(ctx context.Context, letters []*deadletter.Letter) error {
	var storing sync.WaitGroup
	errs := make([]error, len(letters))
	for i, l := range letters {
		storing.Go(func() {
			if errs[i] = p.PersistOf(ctx, func() error { return p.W.Env.Letters.Bury(l) }); errs[i] == nil {
				p.W.Metrics.Finished.Count(lane.Deleted)
			}
		})
	}
	storing.Wait()
	return errors.Join(errs...)
}

// tellOfStock reports the jobs that were deleted while the partition had no owner.
func (p *stocktaking) tellOfStock(letters, unnamed int, another bool) {
	var what []string
	if another {
		what = append(what, "the stream was deleted by hand while weir was stopped, and is made again, empty")
	}
	n := fmt.Sprintf("%d jobs that waited were", letters+unnamed)
	if letters+unnamed == 1 {
		n = "1 job that waited was"
	}
	what = append(what, n+" deleted by hand while weir was stopped")
	switch {
	case unnamed == 0:
		what = append(what, "each becomes a letter (unknown)")
	case p.former.Jobs == nil && !p.former.Closed:
		what = append(what, "so many waited a few seconds before weir ended; they cannot be named any more, and their producers have to hand them in again")
	default:
		what = append(what, fmt.Sprintf("%d become letters (unknown); %d cannot be named any more, and their producers have to hand them in again", letters, unnamed))
	}
	p.TellChange(strings.Join(what, "; "))
}

// Inventories notes which jobs wait in the partitions of a lane.
type Inventories struct {
	*lane.Lane
	owned func() []*Takeover // called under the lock
}

// NewInventories returns the Inventories of a lane. They call owned under the lane's lock.
func NewInventories(l *lane.Lane, owned func() []*Takeover) *Inventories {
	return &Inventories{l, owned}
}

// KeepInventories notes every 5 s which jobs wait in the partitions, until ctx ends.
func (w *Inventories) KeepInventories(ctx context.Context) {
	if w.Env.Control == nil {
		return
	}
	tick := time.NewTicker(inventoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.noteInventories(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (w *Inventories) noteInventories(ctx context.Context) {
	w.Mu.Lock()
	of, notes := map[*schedule.Partition]*inventory{}, map[*stocktaking]*inventory{}
	for _, t := range w.owned() {
		p := t.stock
		if !p.Closing && p.mayNoteInventory() {
			inv := p.newInventory(inventoryBytes)
			of[&p.Partition], notes[p] = inv, inv
		}
	}
	w.Mu.Unlock()
	takeInventories(w.Lane, of)
	for p, inv := range notes {
		p.noteInventory(ctx, inv, inventoryBytes)
	}
}

// mayNoteInventory reports whether the former note is no longer needed, and this owner still has the right to the
// partition.
func (p *stocktaking) mayNoteInventory() bool {
	return p.taken.Load() && p.MayCall()
}

// newInventory begins a note of at most bytes bytes. If the jobs cannot fit, the note only counts them.
func (p *stocktaking) newInventory(bytes int) *inventory {
	inv := &inventory{Count: p.Bucket.Waiting(), room: bytes}
	if inv.Born, inv.Read = p.Bucket.ReadFrom(); inv.Count <= bytes/jobBytes {
		inv.Count, inv.Jobs = 0, map[string][]uint64{}
	}
	return inv
}

// takeInventories fills in the waiting jobs in the notes of partitions.
func takeInventories(l *lane.Lane, of map[*schedule.Partition]*inventory) {
	l.EachLocked(l.Sched.Queues.All(), func(q *schedule.KeyQueue) {
		inv := of[q.Partition]
		if inv == nil || inv.Jobs == nil || q.Empty() {
			return
		}
		inv.list(q.Key, q.Seqs)
	})
	for _, inv := range of {
		for _, seqs := range inv.Jobs {
			slices.Sort(seqs)
			inv.Count += len(seqs)
			if len(seqs) > 0 {
				inv.Read = max(inv.Read, seqs[len(seqs)-1])
			}
			asDistances(seqs)
		}
	}
}

// list adds the jobs of a key. Once the keys cannot fit, it lists all jobs under "": a map of many keys would take far
// more memory than the jobs.
func (inv *inventory) list(key string, seqs iter.Seq[uint64]) {
	if inv.room -= len(key) + keyBytes; inv.room < 0 {
		if _, nameless := inv.Jobs[""]; !nameless {
			inv.Jobs = map[string][]uint64{"": slices.Concat(slices.Collect(maps.Values(inv.Jobs))...)}
		}
		key = ""
	}
	inv.Jobs[key] = slices.AppendSeq(inv.Jobs[key], seqs)
}

// asDistances replaces each number of a rising list, except the first, by its distance from the number before it.
func asDistances(seqs []uint64) {
	for i := len(seqs) - 1; i > 0; i-- {
		seqs[i] -= seqs[i-1]
	}
}

// fit encodes the note in at most bytes bytes. If the keys do not fit, it leaves them out, and then also the sequences.
func (inv *inventory) fit(bytes int) []byte {
	encoded := func() []byte {
		data, err := json.Marshal(inv)
		if err != nil {
			panic("takeover: an inventory that JSON cannot carry: " + err.Error())
		}
		return data
	}
	data := encoded()
	if len(data) <= bytes {
		return data
	}
	var all []uint64
	for _, deltas := range inv.Jobs {
		seq := uint64(0)
		for _, d := range deltas {
			seq += d
			all = append(all, seq)
		}
	}
	slices.Sort(all)
	asDistances(all)
	inv.Jobs = map[string][]uint64{"": all}
	if data = encoded(); len(data) <= bytes {
		return data
	}
	inv.Jobs = nil
	return encoded()
}

// noteInventory stores a note if it differs from the last one.
func (p *stocktaking) noteInventory(ctx context.Context, inv *inventory, bytes int) {
	p.noting.Lock()
	defer p.noting.Unlock()
	inv.Read = max(inv.Read, p.noted.Read)
	if inv.same(&p.noted) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryDeadline)
	defer cancel()
	inv.At = time.Now().UTC()
	said := *inv
	if err := p.storeInventory(ctx, inv, bytes); err != nil {
		if !p.unnoted {
			p.W.Log.Warn("could not note which jobs wait: jobs deleted by hand while weir is stopped would go unnoticed; trying again",
				"stream", p.Bucket.Name(), "err", err)
		}
		p.unnoted = true
		return
	}
	p.noted, p.unnoted = said, false
}

func (p *stocktaking) storeInventory(ctx context.Context, inv *inventory, bytes int) error {
	if _, err := p.W.Env.Control.Put(ctx, inventoryKey(p.Bucket.Name()), inv.fit(bytes)); err != nil {
		return fmt.Errorf("note which jobs wait in %s: %w", p.Bucket.Name(), err)
	}
	return nil
}

// same reports whether two notes are equal. It ignores how far the stream was read.
func (inv *inventory) same(other *inventory) bool {
	return !other.At.IsZero() && inv.Born.Equal(other.Born) && inv.Count == other.Count && inv.Closed == other.Closed &&
		maps.EqualFunc(inv.Jobs, other.Jobs, slices.Equal)
}

// closeInventory stores the last note of a partition that this owner gives up. It must be called after the reader has
// ended, and before the schedule forgets the partition's queues.
func (p *stocktaking) closeInventory(ctx context.Context) {
	if !p.mayNoteInventory() {
		return
	}
	inv := p.newInventory(lastInventory)
	inv.Closed = true
	takeInventories(p.W, map[*schedule.Partition]*inventory{&p.Partition: inv})
	p.noteInventory(ctx, inv, lastInventory)
}
