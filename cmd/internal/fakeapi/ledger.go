package fakeapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// maxLine bounds a line of a ledger, in bytes: a kept body of MaxKeepBody in base64, and a header of 64 KiB with each
// byte escaped.
const maxLine = 8 << 20

// Ledger is a ledger file that was read.
type Ledger struct {
	// Started is the wall clock's time when the ledger began. The wall time of an arrival is Started.Add(At).
	Started time.Time
	// Runs is how many processes have written the ledger.
	Runs int
	// Arrivals are all arrivals, ordered by time.
	Arrivals []Arrival
	// Torn counts lines that broke off when a process died. Their calls had no answer.
	Torn int

	first instant
	last  int64 // the latest time of any record
	bytes int64 // up to the end of the last whole line
}

// ReadLedger reads a ledger file, even while the file is written. Only the last line of a process's records may be
// broken. Any other fault is an error that names the line. ReadLedger needs about half a KiB of memory for each call.
func ReadLedger(path string) (*Ledger, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("fakeapi: read ledger: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	reader := ledgerReader{ledger: &Ledger{}, at: make(map[int64]int)}
	if err := reader.readAll(file); err != nil {
		return nil, fmt.Errorf("fakeapi: ledger %s: %w", path, err)
	}
	slices.SortFunc(reader.ledger.Arrivals, byTime)
	return reader.ledger, nil
}

// ledgerReader is the state of reading one ledger.
type ledgerReader struct {
	ledger *Ledger
	at     map[int64]int // by an arrival's number, its index in Arrivals
	torn   error         // the previous line was broken
}

func (l *ledgerReader) readAll(file io.Reader) error {
	in := bufio.NewReaderSize(file, 64<<10)
	for number := 1; ; number++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			if len(line) > 0 { // still being written, or broken off
				l.ledger.Torn++
			}
			return nil
		}
		if err == nil {
			err = l.take(line)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		l.ledger.bytes += int64(len(line))
	}
}

// readLine returns the next line with its line break. At the end of the file it returns the rest and io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if line == nil && err == nil {
			return part, nil // the usual case: valid until the next read
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes: not a ledger", maxLine)
		}
	}
}

func (l *ledgerReader) take(line []byte) error {
	var rec record
	err := json.Unmarshal(line, &rec)
	if l.torn != nil && (err != nil || rec.Event != "start") {
		return fmt.Errorf("the line before is broken: %w", l.torn)
	}
	l.torn = nil
	if err != nil {
		l.torn = err
		l.ledger.Torn++
		return nil
	}
	l.ledger.last = max(l.ledger.last, rec.At, rec.End)
	at, known := l.at[rec.Number]
	switch {
	case rec.Event == "start":
		if l.ledger.Runs == 0 {
			l.ledger.Started = rec.Wall
			l.ledger.first = instant{wall: rec.Wall, boot: rec.Boot, mono: time.Duration(rec.Mono)}
		}
		l.ledger.Runs++
	case rec.Event == "arrival" && !known:
		l.at[rec.Number] = len(l.ledger.Arrivals)
		l.ledger.Arrivals = append(l.ledger.Arrivals, rec.arrival())
	case rec.Event == "answer" && known && l.ledger.Arrivals[at].Ending == Running:
		rec.settle(&l.ledger.Arrivals[at])
	case rec.Event == "end" && known:
		l.ledger.Arrivals[at].End = rec.End
	default:
		return fmt.Errorf("record %q of call %d does not fit what is before it", rec.Event, rec.Number)
	}
	return nil
}

// ledgerFile appends records to a ledger. It is safe for concurrent use: each record is one write(2) to a file opened
// for appending, which the kernel does not split.
type ledgerFile struct {
	file   *os.File
	failed atomic.Pointer[error] // the first failure; after it nothing is written
}

// openLedger opens or creates a ledger, reads it, and writes the start record of this process.
func openLedger(path string, now instant) (*ledgerFile, *Ledger, time.Duration, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("fakeapi: open ledger: %w", err)
	}
	past, offset, err := takeUp(file, path, now)
	if err != nil {
		return nil, nil, 0, errors.Join(err, file.Close())
	}
	return &ledgerFile{file: file}, past, offset, nil
}

// takeUp reads a ledger and writes the start record. It returns the time since the ledger began.
func takeUp(file *os.File, path string, now instant) (*Ledger, time.Duration, error) {
	past, err := ReadLedger(path)
	if err != nil {
		return nil, 0, err
	}
	var line []byte
	var offset time.Duration
	if past.Runs > 0 {
		// Time must never go back, even if the wall clock was stepped.
		offset = max(now.since(past.first), time.Duration(past.last)+1)
	}
	if info, err := file.Stat(); err != nil {
		return nil, 0, fmt.Errorf("fakeapi: open ledger: %w", err)
	} else if info.Size() > past.bytes {
		line = append(line, '\n') // end the broken line
	}
	line = appendStart(line, past.Runs+1, now, int64(offset))
	if _, err := file.Write(line); err != nil {
		return nil, 0, fmt.Errorf("fakeapi: open ledger: %w", err)
	}
	return past, offset, nil
}

// write appends one whole record. After a failure every later write fails with the same error, because a part of the
// failed record may be in the file, and no record may follow it.
func (l *ledgerFile) write(line []byte) error {
	if l == nil {
		return nil
	}
	if err := l.err(); err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		err = fmt.Errorf("fakeapi: write ledger: %w", err)
		l.failed.CompareAndSwap(nil, &err)
		return err
	}
	return nil
}

// err returns the first failed write.
func (l *ledgerFile) err() error {
	if l == nil {
		return nil
	}
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *ledgerFile) close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.err(), l.file.Close())
}
