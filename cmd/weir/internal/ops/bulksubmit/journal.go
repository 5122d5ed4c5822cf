package bulksubmit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxJournal bounds the jobs in a journal. Its index in memory takes some 60 bytes per job.
const maxJournal = 10_000_000

// word is the state of a job in a journal.
type word string

// The states.
const (
	wordSent    word = "sent"    // no answer came yet: weir may have accepted the job
	wordTaken   word = "taken"   // the job has a receipt
	wordRefused word = "refused" // weir did not accept the job
)

// entry is the last recorded state of a job, and when it was recorded.
type entry struct {
	word word
	at   time.Time
}

// Journal records on disk the state of a file's jobs. A nil *Journal records nothing. Only one goroutine may use it.
type Journal struct {
	file  *os.File
	last  map[[16]byte]entry
	noted []byte // lines that are not yet written to the file
}

// OpenJournal opens or creates a journal, to which further notes are appended. If forget is true, it empties the
// journal first. If the file is not a journal, or another run has it open, OpenJournal fails and leaves the file
// unchanged. The caller must close the journal.
func OpenJournal(path string, forget bool) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), file.Close())
	}
	j := &Journal{file: file, last: map[[16]byte]entry{}}
	if err := j.load(forget); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), file.Close())
	}
	return j, nil
}

// errInUse reports that another process has the journal. Two runs would overwrite each other's notes, and a later run
// would submit jobs again of which it knows nothing.
var errInUse = errors.New("another run of `weir submit` uses it: wait until that has ended")

var errNoJournal = errors.New("this is not a journal of `weir submit`: name another file")

// cut matches an incomplete last line, which a kill may leave.
var cut = regexp.MustCompile(`^[0-9]*( [a-z]*( [0-9a-f]*)?)?$`)

// load reads the journal. If forget is true, it only checks that the file is a journal, and empties it. load cuts off
// an incomplete last line: the job of that line was not sent yet, or will be sent again under its id.
func (j *Journal) load(forget bool) error {
	if info, err := j.file.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() { // a device may have no end
		return errNoJournal
	}
	in := bufio.NewReader(j.file)
	var whole int64
	for n := 1; ; n++ {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, io.EOF) && !cut.Match(text) {
			return fmt.Errorf("line %d: %w", n, errNoJournal)
		} else if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		whole += int64(len(text))
		if err := j.read(string(bytes.TrimSuffix(text, []byte("\n")))); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if forget {
			clear(j.last)
			whole = 0
			break
		}
	}
	if err := j.file.Truncate(whole); err != nil {
		return err
	}
	_, err := j.file.Seek(whole, io.SeekStart)
	return err
}

func (j *Journal) read(text string) error {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return errNoJournal
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	id, bad := hex.DecodeString(fields[2])
	w := word(fields[1])
	if err != nil || bad != nil || len(id) != 16 || w != wordSent && w != wordTaken && w != wordRefused {
		return errNoJournal
	}
	return j.set([16]byte(id), entry{w, time.UnixMilli(at)})
}

func (j *Journal) set(id [16]byte, e entry) error {
	if _, known := j.last[id]; !known && len(j.last) >= maxJournal {
		return fmt.Errorf("it has %d jobs, the maximum: split the file", maxJournal)
	}
	j.last[id] = e
	return nil
}

// of returns the last entry of a job.
func (j *Journal) of(id [16]byte) (entry, bool) {
	if j == nil {
		return entry{}, false
	}
	e, known := j.last[id]
	return e, known
}

// note records the state of a job. The record is on disk once sync has returned.
func (j *Journal) note(id [16]byte, w word, at time.Time) error {
	if j == nil {
		return nil
	}
	if err := j.set(id, entry{w, at}); err != nil {
		return err
	}
	j.noted = strconv.AppendInt(j.noted, at.UnixMilli(), 10)
	j.noted = append(j.noted, ' ')
	j.noted = append(j.noted, w...)
	j.noted = append(j.noted, ' ')
	j.noted = hex.AppendEncode(j.noted, id[:])
	j.noted = append(j.noted, '\n')
	return nil
}

// write writes the recorded lines to the file. They survive a kill of the process, but not a power cut.
func (j *Journal) write() error {
	if j == nil || len(j.noted) == 0 {
		return nil
	}
	if _, err := j.file.Write(j.noted); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.noted = j.noted[:0]
	return nil
}

// sync writes the recorded lines to the disk.
func (j *Journal) sync() error {
	if j == nil {
		return nil
	}
	if err := j.write(); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close syncs the journal and closes its file.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	return errors.Join(j.sync(), j.file.Close())
}
