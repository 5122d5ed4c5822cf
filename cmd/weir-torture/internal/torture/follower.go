package torture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// follower reads the api's ledger while the api writes it, and knows when each key was last called.
type follower struct {
	file  *os.File
	began time.Time // when the ledger's clock began
	part  []byte    // an incomplete line
	last  map[string]time.Time
}

func follow(ledger string) (*follower, error) {
	file, err := os.Open(ledger)
	if err != nil {
		return nil, fmt.Errorf("follow the ledger: %w", err)
	}
	return &follower{file: file, last: map[string]time.Time{}}, nil
}

func (f *follower) close() error { return f.file.Close() }

// read reads the records written since the last read.
func (f *follower) read() error {
	written, err := io.ReadAll(f.file)
	if err != nil {
		return fmt.Errorf("follow the ledger: %w", err)
	}
	f.part = append(f.part, written...)
	for {
		line, rest, whole := bytes.Cut(f.part, []byte("\n"))
		if !whole {
			f.part = bytes.Clone(f.part)
			return nil
		}
		f.part = rest
		var record struct {
			Event string    `json:"e"`
			At    int64     `json:"at"`
			Key   string    `json:"key"`
			Wall  time.Time `json:"wall"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			return fmt.Errorf("follow the ledger: %w", err)
		}
		switch record.Event {
		case "start":
			f.began = record.Wall
		case "arrival":
			f.last[record.Key] = f.began.Add(time.Duration(record.At))
		}
	}
}

// calledSince reports whether every key was called after a moment.
func (f *follower) calledSince(keys []string, moment time.Time) bool {
	for _, k := range keys {
		if !f.last[k].After(moment) {
			return false
		}
	}
	return true
}
