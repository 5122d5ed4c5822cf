package recorder

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"weir/bucket/fault"
)

// Recorder has one process's own file, and what it read from the files that ended processes left on the same machine.
// It is safe for concurrent use. A nil Recorder notes nothing and knows nothing.
type Recorder struct {
	dir, path string
	name      uint64
	boot      string
	size      Size
	file      *os.File // holds the lock
	data      []byte   // the mapping
	words     []uint64 // the mapping's header and entries
	log       *slog.Logger

	mixed atomic.Pointer[Answer] // used by a planted bug

	unlink func(path string) error // removes the file of a recorder that was given up
	broken atomic.Bool             // the mapping cannot be written: the recorder notes nothing any more
	gone   atomic.Bool             // broken, and the file was removed: calls may begin without a note
	missed atomic.Int64

	mu     sync.Mutex // guards what follows
	nextID uint64
	slots  []slot
	free   []uint32 // free entries; the last is used first
	parked list     // entries whose intents were taken back, oldest first
	chunks []uint16 // free chunks; the last is used first

	ledgerMu   sync.Mutex // guards what follows
	ledgerBorn time.Time  // zero before it is known
	ledgerLast uint64

	formerMu sync.Mutex // guards former
	former   former
}

// slot is what the process keeps in memory about one entry.
type slot struct {
	id         uint64 // 0: free
	prev, next uint32 // neighbours while parked; the number of slots stands for none
	parked     bool
	begun      bool // the call began, or ended before it began
	chunks     int8 // how many chunks it has; 0 until the outcome is noted
}

// Options of a Recorder. Dir and Log are required.
type Options struct {
	Dir  string
	Size Size // zero: Usual
	Log  *slog.Logger
}

// ErrUnfit says that a directory cannot hold a recorder's file: the file cannot be made there, or other processes could
// not find out there whether the file's process has ended.
var ErrUnfit = errors.New("the flight recorder cannot be kept there")

const (
	filePrefix = "flight-"
	fileSuffix = ".rec"

	unbornSuffix = ".new" // of a file that is not complete yet
)

func fileName(name uint64) string { return fmt.Sprintf("%s%016x%s", filePrefix, name, fileSuffix) }

// nameOf is the inverse of fileName. ok is false for other files.
func nameOf(file string) (name uint64, ok bool) {
	text, pre := strings.CutPrefix(file, filePrefix)
	text, post := strings.CutSuffix(text, fileSuffix)
	name, err := strconv.ParseUint(text, 16, 64)
	return name, pre && post && err == nil && len(text) == 16 && name != 0
}

// Open makes the directory and this process's file, and reads the files that ended processes have left in the
// directory. It blocks while the disk allocates the file. The error wraps ErrUnfit if the directory cannot hold the
// file.
func Open(o Options) (*Recorder, error) {
	if o.Size == (Size{}) {
		o.Size = Usual
	}
	r := &Recorder{
		dir: o.Dir, size: o.Size, log: o.Log.With("component", "recorder"), nextID: rand.Uint64() &^ (1 << 63), former: newFormer(), unlink: os.Remove,
	}
	for r.name == 0 {
		r.name = rand.Uint64()
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnfit, err)
	}
	r.path = filepath.Join(o.Dir, fileName(r.name))
	if err := r.create(); err != nil {
		return nil, err
	}
	r.words = unsafe.Slice((*uint64)(unsafe.Pointer(&r.data[0])), r.size.chunksFrom()/8)
	none := uint32(r.size.Entries)
	r.slots, r.parked = make([]slot, r.size.Entries), list{first: none, last: none, none: none}
	for i := range r.size.Entries {
		r.free = append(r.free, uint32(r.size.Entries-1-i))
	}
	for i := range r.size.Chunks {
		r.chunks = append(r.chunks, uint16(r.size.Chunks-1-i))
	}
	r.removeUnborn()
	r.Look()
	return r, nil
}

// Name returns the name of this process's life, "" for a nil Recorder. No other process ever has the same name.
func (r *Recorder) Name() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%016x", r.name)
}

// Missed returns how often the file has had no room for a note: for a call's entry, or for its outcome.
func (r *Recorder) Missed() int64 {
	if r == nil {
		return 0
	}
	return r.missed.Load()
}

// Close ends the recorder. No call may run, and nothing may be noted afterwards. Close removes the file if no entry in
// it is needed.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := r.size.Entries - len(r.free) - r.parked.size
	r.broken.Store(true)
	if idle == 0 {
		r.remove(r.path)
	}
	return errors.Join(unmap(r.data), r.file.Close())
}

// remove removes a file. A file that cannot be removed does no harm.
func (r *Recorder) remove(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Warn("could not remove a file that is no longer needed", "path", path, "err", err)
	}
}

// entry returns the words of an entry.
func (r *Recorder) entry(n uint32) []uint64 {
	from := headerBytes/8 + int(n)*entryWords
	return r.words[from : from+entryWords : from+entryWords]
}

func (r *Recorder) chunk(n uint16) []byte {
	from := r.size.chunksFrom() + int64(n)*chunkBytes
	return r.data[from : from+chunkBytes : from+chunkBytes]
}

// written runs do, which writes to the mapping, and reports whether that succeeded. If the disk cannot provide a page,
// written gives up the recorder, and the process goes on.
func (r *Recorder) written(do func()) (ok bool) {
	if r.broken.Load() {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if !ok {
			r.fail(recover())
		}
	}()
	do()
	return true
}

// fail gives up the recorder and removes its file. Once the file is gone, calls may begin without a note.
func (r *Recorder) fail(cause any) {
	if r.broken.Swap(true) {
		return
	}
	err := r.unlink(r.path)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		r.gone.Store(true)
	}
	r.log.Error("cannot write the flight recorder's file and stopped recording: after a kill -9 more jobs will be unknown; check the disk and restart",
		"path", r.path, "cause", fmt.Sprint(cause), "err", err)
}

// Entry is the entry of one call. The zero value is no entry: nothing is noted of the call.
type Entry struct {
	r    *Recorder
	slot uint32
	id   uint64
}

// ID returns the entry's own number, which the call's intent names; 0 for none.
func (e Entry) ID() uint64 { return e.id }

// Prepare notes that a call has an intent and has not begun. The caller must call it before it stores the intent. last
// is the job's previous entry. If last belongs to the same call, Prepare uses it again. It returns the zero Entry if
// there is no room.
func (r *Recorder) Prepare(c Call, last Entry) Entry {
	if r == nil || r.broken.Load() {
		return Entry{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last.r == r && r.slots[last.slot].id == last.id && c.is(r.entry(last.slot)) {
		if r.slots[last.slot].parked {
			r.parked.remove(r.slots, last.slot)
		}
		return last
	}
	r.nextID++
	return r.writeLocked(c, r.nextID)
}

// Adopt takes over an ended process's note that a call has not begun: it notes the same in this process's file. The
// file of the ended process is then not needed for this call.
func (r *Recorder) Adopt(id uint64, c Call) Entry {
	if r == nil || r.broken.Load() {
		return Entry{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeLocked(c, id)
}

// writeLocked notes that a call has not begun.
func (r *Recorder) writeLocked(c Call, id uint64) Entry {
	n, ok := r.takeLocked()
	if !ok {
		r.missed.Add(1)
		return Entry{}
	}
	entry := r.entry(n)
	if !r.written(func() {
		state := (*atomic.Uint64)(unsafe.Pointer(&entry[wordState]))
		state.Store(0)
		c.write(entry, id)
		state.Store(sumOf(entry, r.name, Prepared))
	}) {
		return Entry{}
	}
	r.slots[n] = slot{id: id}
	return Entry{r, n, id}
}

// takeLocked takes a free entry, or if there is none, the one that was parked first.
func (r *Recorder) takeLocked() (n uint32, ok bool) {
	if last := len(r.free) - 1; last >= 0 {
		n, r.free = r.free[last], r.free[:last]
		return n, true
	}
	n = r.parked.first
	if r.parked.size == 0 {
		return 0, false
	}
	r.parked.remove(r.slots, n)
	r.slots[n] = slot{}
	return n, true
}

// LetGo notes that the entry is not needed any more: the call's outcome is stored, or the call has not begun and its
// intent was taken back. If the call has not begun, the entry stays unchanged as long as there is room, because another
// process may still find the intent.
func (e Entry) LetGo() {
	if e.r == nil {
		return
	}
	e.r.mu.Lock()
	s := &e.r.slots[e.slot]
	mine, begun := s.id == e.id && !s.parked, s.begun
	if mine && !begun {
		e.r.parked.push(e.r.slots, e.slot)
	}
	e.r.mu.Unlock()
	if mine && begun {
		e.Settle()
	}
}

// begins notes in memory that the call begins, and reports whether it may begin. If the entry belongs to another call
// by now, the call may begin only if the recorder was given up and its file removed.
func (e Entry) begins() bool {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	s := &e.r.slots[e.slot]
	if s.id != e.id || s.parked {
		return e.r.gone.Load()
	}
	s.begun = true
	return true
}

// turn changes an entry's state, and its other words if change is not nil. It returns false if the mapping cannot be
// written.
func (e Entry) turn(to State, change func(entry []uint64)) bool {
	entry := e.r.entry(e.slot)
	return e.r.written(func() {
		state := (*atomic.Uint64)(unsafe.Pointer(&entry[wordState]))
		state.Store(0)
		if change != nil {
			change(entry)
		}
		state.Store(sumOf(entry, e.r.name, to))
	})
}

// Begin notes that a call begins. The caller calls it before the first byte can leave. If it returns false, no byte may
// leave. tat is the key's theoretical arrival time after the call, in microseconds.
func (e Entry) Begin(at time.Time, tat int64) bool {
	if e.r == nil {
		return true
	}
	if !e.begins() {
		return false // it belongs to another call by now, which is a bug: nothing must be sent
	}
	return e.turn(Begun, func(entry []uint64) { entry[wordBegun], entry[wordTAT] = uint64(at.UnixMicro()), uint64(tat) }) || e.r.gone.Load()
}

// Left notes that the first bytes of a call have left. It does nothing if the call's outcome is noted already: the
// goroutine that reads the answer may be faster than the one that sends.
func (e Entry) Left() {
	if e.r == nil {
		return
	}
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	if s := &e.r.slots[e.slot]; s.id == e.id && !s.parked && s.chunks == 0 {
		e.turn(Left, nil)
	}
}

// Answer notes the outcome of a call, which may have failed before it began. It reports whether the whole body is
// noted.
func (e Entry) Answer(a *Answer) (whole bool) {
	if e.r == nil || e.r.broken.Load() {
		return false
	}
	if fault.Planted(fault.RecordMixed) {
		if a = e.r.mixed.Swap(a.clone()); a == nil {
			return false
		}
	}
	room := a.room()
	var numbers [mostChunks]uint16
	want := min((room+len(a.Body)+chunkBytes-1)/chunkBytes, mostChunks)
	e.r.mu.Lock()
	s := &e.r.slots[e.slot]
	if s.id != e.id || s.parked {
		e.r.mu.Unlock()
		return false // it belongs to another call by now
	}
	n := min(want, len(e.r.chunks))
	left := len(e.r.chunks) - n
	copy(numbers[:], e.r.chunks[left:])
	e.r.chunks = e.r.chunks[:left]
	s.begun, s.chunks = true, int8(n) // an entry with an outcome is settled later, and never parked
	e.r.mu.Unlock()
	body := min(len(a.Body), n*chunkBytes-room)
	if body < 0 {
		e.r.missed.Add(1)
		e.giveChunks(numbers[:n])
		return false
	}
	var p pen
	for i, number := range numbers[:n] {
		p.chunks[i] = e.r.chunk(number)
	}
	var sum uint32
	if !e.r.written(func() { a.write(&p, body); sum = p.sum() }) {
		return false
	}
	e.turn(Answered, func(entry []uint64) {
		entry[wordAnswer] = uint64(room+body)<<32 | uint64(sum)
		for i, number := range numbers[:n] {
			entry[wordChunks+i/4] |= uint64(number) << (16 * (i % 4))
		}
	})
	return body == len(a.Body)
}

func (e Entry) giveChunks(numbers []uint16) {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	e.r.slots[e.slot].chunks = 0
	e.r.chunks = append(e.r.chunks, numbers...)
}

// Settle notes that the call's outcome is stored or does not matter any more, and frees the entry.
func (e Entry) Settle() {
	if e.r == nil || e.r.broken.Load() {
		return
	}
	e.r.mu.Lock()
	s := &e.r.slots[e.slot]
	mine := s.id == e.id
	if mine && s.parked {
		e.r.parked.remove(e.r.slots, e.slot)
	}
	n := int(s.chunks)
	e.r.mu.Unlock()
	if !mine || !e.turn(Settled, nil) {
		return
	}
	entry := e.r.entry(e.slot)
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	for i := range n {
		e.r.chunks = append(e.r.chunks, chunksAt(entry, i))
	}
	e.r.slots[e.slot] = slot{}
	e.r.free = append(e.r.free, e.slot)
}
