//go:build linux

package main

import (
	"context"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"weir/cmd/internal/child"
)

// versions returns the versions of the measured programs, as each reports its own.
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
		if text, err := done(ctx, child.Options{Name: name, Path: path, Args: args}); err == nil {
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
