package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine is what the measurement ran on.
type Machine struct {
	OS    string  `json:"os"`
	Cores int     `json:"cores"`
	CPU   string  `json:"cpu"`      // empty where the system does not tell
	Load  string  `json:"load"`     // of the last minute, when the measurement began; empty where the system does not tell
	Sync  float64 `json:"fsync_us"` // the median of 200 of 4 KiB, in the directory of the store
}

// String is the machine in one line.
func (m Machine) String() string {
	text := fmt.Sprintf("%s, %d cores", m.OS, m.Cores)
	if m.CPU != "" {
		text += ", " + m.CPU
	}
	text += fmt.Sprintf(", an fsync takes %s µs", short(m.Sync))
	if m.Load != "" {
		text += ", load " + m.Load + " at the start"
	}
	return text
}

// look measures what a store in dir has under it.
func look(dir string) (Machine, error) {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), CPU: processor(), Load: loadAverage()}
	sync, err := syncTime(dir)
	m.Sync = float64(sync.Nanoseconds()) / 1000
	return m, err
}

// syncTime is how long one fsync takes.
func syncTime(dir string) (took time.Duration, err error) {
	const (
		tries = 200
		page  = 4 << 10
	)
	file := filepath.Join(dir, "fsync")
	f, err := os.Create(file)
	if err != nil {
		return 0, fmt.Errorf("measure an fsync: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(file) }()
	each := make([]time.Duration, tries)
	for i := range each {
		if _, err := f.Write(make([]byte, page)); err != nil {
			return 0, fmt.Errorf("measure an fsync: %w", err)
		}
		begin := time.Now()
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("measure an fsync: %w", err)
		}
		each[i] = time.Since(begin)
	}
	slices.Sort(each)
	return each[tries/2], nil
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
