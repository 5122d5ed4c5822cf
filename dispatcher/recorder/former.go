package recorder

import (
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/bucket/fault"
)

// Found is what a former process noted of a call.
type Found struct {
	State  State
	Begun  time.Time // zero if the call had not begun
	TAT    int64     // the key's theoretical arrival time after the call; 0 if the call had not begun
	Answer *Answer   // set if State is Answered
}

// former holds what the files of ended processes contain.
type former struct {
	lives   map[uint64]*life
	useless map[uint64]struct{}  // unusable files: each was logged, and is not read again
	unread  map[uint64]struct{}  // files that could not be read: each was logged, and Look tries it again
	entries map[uint64]leftEntry // by id
}

// life is the file of one ended process.
type life struct {
	path    string
	started uint64
	ledger  uint64 // the ledger mark in it, see ledgerWord
	seen    time.Time
}

type leftEntry struct {
	words  []uint64
	of     uint64 // the name of its life
	state  State
	answer *Answer
}

// hasRead reports whether the file with this name was read, usable or not.
func (f *former) hasRead(name uint64) bool {
	_, known := f.lives[name]
	_, useless := f.useless[name]
	return known || useless
}

func newFormer() former {
	return former{lives: map[uint64]*life{}, useless: map[uint64]struct{}{}, unread: map[uint64]struct{}{}, entries: map[uint64]leftEntry{}}
}

// forgetMissing forgets the useless and unread files that no longer exist. files are the paths of those that exist.
func (f *former) forgetMissing(files []string) {
	there := map[uint64]bool{}
	for _, path := range files {
		if name, ok := nameOf(filepath.Base(path)); ok {
			there[name] = true
		}
	}
	missing := func(name uint64, _ struct{}) bool { return !there[name] }
	maps.DeleteFunc(f.useless, missing)
	maps.DeleteFunc(f.unread, missing)
}

// Bounds of the files that ended processes leave. A process that is killed before it has settled anything leaves its
// file, and so may the next one.
const (
	mostLives = 8
	mostFiles = 256 // files that one Look considers, besides those that were read before
	unborn    = 10 * time.Minute
)

// Look reads the files of processes that have ended since the last Look. It blocks while it reads them.
func (r *Recorder) Look() {
	if r == nil {
		return
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	files, err := filepath.Glob(filepath.Join(r.dir, filePrefix+"*"+fileSuffix))
	if err != nil {
		return // Glob fails only on a wrong pattern
	}
	r.former.forgetMissing(files)
	considered := 0
	for _, path := range files {
		name, ok := nameOf(filepath.Base(path))
		if !ok || name == r.name || r.former.hasRead(name) {
			continue
		}
		if considered++; considered > mostFiles {
			break
		}
		r.lookAtLocked(path, name)
	}
	r.forgetSomeLocked()
}

// removeUnborn removes files that have been incomplete for so long that the processes that made them must have ended.
func (r *Recorder) removeUnborn() {
	files, err := filepath.Glob(filepath.Join(r.dir, filePrefix+"*"+unbornSuffix))
	if err != nil {
		return // Glob fails only on a wrong pattern
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > unborn {
			r.remove(path)
		}
	}
}

// lookAtLocked reads one file, if its process has ended.
func (r *Recorder) lookAtLocked(path string, name uint64) {
	file, ended := openEnded(path)
	if !ended {
		return
	}
	defer func() { _ = file.Close() }() // it was read
	data, err := r.read(file)
	switch _, told := r.former.unread[name]; {
	case errors.Is(err, errTooLarge):
		r.uselessLocked(path, name, err.Error())
		return
	case err != nil && !told:
		r.former.unread[name] = struct{}{}
		r.log.Warn("a flight recorder's file cannot be read; until it can, its calls are judged by their intents", "path", path, "err", err)
		return
	case err != nil:
		return
	}
	delete(r.former.unread, name)
	head, why := readHeader(file, data, name, r.boot)
	if why == otherBoot {
		r.remove(path)
		return
	}
	if why != "" {
		r.uselessLocked(path, name, why)
		return
	}
	words := wordsOf(data[:headerBytes])
	r.former.lives[name] = &life{path: path, started: words[headStarted], ledger: words[headLedger], seen: time.Now()}
	open := 0
	for id, e := range readEntries(data, head, name) {
		if other, twice := r.former.entries[id]; twice && (other.state != e.state || !slices.Equal(other.words[wordID:], e.words[wordID:])) {
			e.state = Untold // a later process had adopted the call: the two entries differ, so neither counts
		}
		r.former.entries[id] = e
		if e.state == Begun || e.state == Left || e.state == Answered {
			open++
		}
	}
	r.log.Info("found the flight recorder of a process that has ended", "path", path, "under_way", open)
}

// uselessLocked logs that a file is unusable, and notes it in useless.
func (r *Recorder) uselessLocked(path string, name uint64, why string) {
	delete(r.former.unread, name)
	r.former.useless[name] = struct{}{}
	r.log.Warn("a flight recorder's file is unusable; its calls are judged by their intents", "path", path, "reason", why)
}

// errTooLarge reports a file that no recorder can have made.
var errTooLarge = errors.New("it is larger than a flight recorder's file can be")

// Reasons why a file is unusable.
const (
	otherBoot = "the machine has been started again"
	notWhole  = "it is not whole"
)

// readHeader returns the size of a file's parts, or the reason why the file is unusable.
func readHeader(file *os.File, data []byte, name uint64, boot string) (size Size, why string) {
	if len(data) < headerBytes {
		return size, notWhole
	}
	head := wordsOf(data[:headerBytes])
	size = Size{Entries: int(min(head[headEntries], 1<<20)), Chunks: int(min(head[headChunks], 1<<16))}
	device, inode, born := placeOf(file)
	switch {
	case head[headMagic] != magic || head[headSum] != headSumOf(head):
		return size, notWhole
	case head[headVersion] != version:
		return size, "it is of another version"
	case head[headName] != name || head[headDevice] != device || head[headInode] != inode || head[headBorn] != born:
		return size, "it is a copy"
	case string(data[headBoot*8:headBoot*8+len(boot)]) != boot && !fault.Planted(fault.StaleBoot):
		return size, otherBoot
	case size.bytes() != int64(len(data)):
		return size, notWhole
	}
	return size, ""
}

// readEntries returns the entries of a file whose state can be read, by their numbers. weir never writes the same
// number twice into one file: if two entries share one, neither counts.
func readEntries(data []byte, size Size, name uint64) map[uint64]leftEntry {
	all := map[uint64]leftEntry{}
	for i := range size.Entries {
		from := headerBytes + i*entryBytes
		words := wordsOf(data[from : from+entryBytes])
		state := stateOf(words, name)
		if state == Untold {
			continue
		}
		e := leftEntry{words: words, of: name, state: state}
		if state == Answered {
			if e.answer = answerOf(data, size, words); e.answer == nil {
				e.state = Left // an incomplete answer does not count
			}
		}
		if _, twice := all[words[wordID]]; twice {
			e.state = Untold
		}
		all[words[wordID]] = e
	}
	return all
}

// answerOf returns the answer that an entry names, nil if it is not whole.
func answerOf(data []byte, size Size, entry []uint64) *Answer {
	length, sum := int64(entry[wordAnswer]>>32), uint32(entry[wordAnswer])
	if length > MaxBody {
		return nil
	}
	var b []byte
	for i := 0; int64(len(b)) < length; i++ {
		n := chunksAt(entry, i)
		if int(n) >= size.Chunks {
			return nil
		}
		from := size.chunksFrom() + int64(n)*chunkBytes
		b = append(b, data[from:from+min(chunkBytes, length-int64(len(b)))]...)
	}
	if crc32.Checksum(b, castagnoli) != sum {
		return nil
	}
	a, err := readAnswer(b)
	if err != nil {
		return nil
	}
	return a
}

// forgetSomeLocked removes the oldest files until mostLives are left.
func (r *Recorder) forgetSomeLocked() {
	for len(r.former.lives) > mostLives {
		oldest := uint64(0)
		for name, l := range r.former.lives {
			if oldest == 0 || l.started < r.former.lives[oldest].started {
				oldest = name
			}
		}
		r.forgetLocked(oldest)
	}
}

func (r *Recorder) forgetLocked(name uint64) {
	r.remove(r.former.lives[name].path)
	delete(r.former.lives, name)
	for id, e := range r.former.entries {
		if e.of == name {
			delete(r.former.entries, id)
		}
	}
}

// Find returns what an ended process noted of a call. id is the number of the entry, which the call's intent names.
// Find returns Untold if anything is uncertain.
func (r *Recorder) Find(id uint64, c Call) Found {
	if r == nil || id == 0 {
		return Found{}
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	e, ok := r.former.entries[id]
	if !ok || e.state == Untold || e.state == Settled || !c.is(e.words) {
		return Found{}
	}
	f := Found{State: e.state, Answer: e.answer}
	if e.state != Prepared {
		f.Begun, f.TAT = time.UnixMicro(int64(e.words[wordBegun])), int64(e.words[wordTAT])
	}
	return f
}

// Gone reports whether the process with this name is known to have ended. It does not block for long: it reads no file
// again that it could read once.
func (r *Recorder) Gone(name string) bool {
	if r == nil {
		return false
	}
	of, ok := nameOf(filePrefix + name + fileSuffix)
	if !ok || of == r.name {
		return false
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	if !r.former.hasRead(of) {
		r.lookAtLocked(filepath.Join(r.dir, fileName(of)), of)
	}
	_, known := r.former.lives[of]
	return known
}

// Retire removes the file of each former process that was found at least kept ago. The caller must know that everything
// in these files is stored elsewhere, or not needed any more.
func (r *Recorder) Retire(kept time.Duration) {
	if r == nil {
		return
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	for name, l := range r.former.lives {
		if time.Since(l.seen) >= kept {
			r.forgetLocked(name)
		}
	}
}

// Former returns how many files of former processes there are.
func (r *Recorder) Former() int {
	if r == nil {
		return 0
	}
	r.formerMu.Lock()
	defer r.formerMu.Unlock()
	return len(r.former.lives)
}
