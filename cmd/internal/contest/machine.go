package contest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine describes what a measurement runs on.
type Machine struct {
	OS    string  `json:"os"`
	Cores int     `json:"cores"`
	CPU   string  `json:"cpu"`      // empty where the system does not tell
	Load  string  `json:"load"`     // of the last minute, when the measurement began; empty where the system does not tell
	Sync  float64 `json:"fsync_us"` // the median of 200 of 4 KiB, in the directory of the store
}

// Look measures what stores in dir have under them.
func Look(dir string) (Machine, error) {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, text, _ := strings.Cut(string(text), "model name")
		line, _, _ := strings.Cut(text, "\n")
		m.CPU = strings.TrimLeft(line, "\t :")
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	took, err := syncTime(filepath.Join(dir, "fsync"))
	m.Sync = float64(took.Nanoseconds()) / 1000
	return m, err
}

// syncTime returns how long one fsync takes.
func syncTime(file string) (time.Duration, error) {
	const (
		tries = 200
		page  = 4 << 10
	)
	f, err := os.Create(file)
	if err != nil {
		return 0, fmt.Errorf("measure an fsync: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(file) }()
	each := make([]time.Duration, tries)
	for i := range each {
		_, err := f.Write(make([]byte, page))
		begin := time.Now()
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return 0, fmt.Errorf("measure an fsync: %w", err)
		}
		each[i] = time.Since(begin)
	}
	slices.Sort(each)
	return each[tries/2], nil
}
