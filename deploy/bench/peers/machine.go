//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Machine is what the run was on.
type Machine struct {
	Cores int     `json:"cores"`
	CPU   string  `json:"cpu"`
	Load  string  `json:"load_at_the_start"`
	Sync  float64 `json:"fsync_us"` // the median of 200 of 4 KiB, where the stores are
}

// String is the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %s, an fsync takes %s µs, load %s at the start", m.Cores, m.CPU, short(m.Sync), m.Load)
}

// lookAt measures what stores in dir have under them.
func lookAt(dir string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	took, err := syncTime(filepath.Join(dir, "fsync"))
	m.Sync = float64(took.Nanoseconds()) / 1000
	return m, err
}

// syncTime is how long one fsync takes.
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

// versions are those of what was measured, as each tells its own.
func versions(ctx context.Context, s *stage, peers []string) map[string]string {
	all := map[string]string{}
	linked := func(name, path string) {
		info, _ := debug.ReadBuildInfo()
		for _, m := range info.Deps {
			if m.Path == path {
				all[name] = strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	ask := func(name, number, path string, args ...string) {
		if text, err := done(ctx, command{name: name, path: path, args: args}); err == nil {
			all[name] = regexp.MustCompile(number).FindString(text)
		}
	}
	for _, peer := range peers {
		switch peer {
		case "weir":
			ask("weir's commit", `\w+`, "git", "rev-parse", "--short", "HEAD")
		case "nats":
			linked("nats.go", "github.com/nats-io/nats.go")
		case "river":
			linked("River", "github.com/riverqueue/river")
			if bin, err := postgresBin(ctx); err == nil {
				ask("PostgreSQL", `\d+[.]\d+`, filepath.Join(bin, "postgres"), "--version")
			}
		case "asynq":
			linked("Asynq", "github.com/hibiken/asynq")
			ask("Redis", `\d+[.]\d+[.]\d+`, "redis-server", "--version")
		case "bullmq":
			if _, version, ok := strings.Cut(string(bullPackage), `"bullmq": "`); ok {
				all["BullMQ"], _, _ = strings.Cut(version, `"`)
			}
			ask("Node.js", `\d+[.]\d+[.]\d+`, "node", "--version")
			ask("Redis", `\d+[.]\d+[.]\d+`, "redis-server", "--version")
		}
	}
	return all
}
