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

// Machine describes the machine of a measurement.
type Machine struct {
	OS    string  `json:"os"`
	Cores int     `json:"cores"`
	CPU   string  `json:"cpu"`      // the processor; empty if the system does not show it
	Load  string  `json:"load"`     // of the minute before the measurement; empty if the system does not show it
	Sync  float64 `json:"fsync_us"` // of 4 KiB in the directory of the stores, in µs: the median of 200
}

// Look describes the machine, and measures an fsync in dir.
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

// syncTime returns the median duration of an fsync of a file.
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
