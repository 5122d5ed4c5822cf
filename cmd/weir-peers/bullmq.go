//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed" // of the program in JavaScript
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"weir/cmd/internal/child"
)

// BullMQ's role, and the packages that npm installs for it.
var (
	//go:embed bullmq/role.mjs
	bullRole []byte
	//go:embed bullmq/package.json
	bullPackage []byte
)

// installWithin bounds the installation of one package.
const installWithin = 5 * time.Minute

// bullProgram installs BullMQ with npm and returns the path of its role. The installation stays in the user's cache.
func bullProgram(ctx context.Context) (string, error) {
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		pkg := map[string]string{"node": "nodejs", "npm": "npm"}[name]
		if err := apt(ctx, pkg); err != nil {
			return "", err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a directory for BullMQ: %w", err)
	}
	dir := filepath.Join(cache, "weir-bench-peers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("a directory for BullMQ: %w", err)
	}
	had, _ := os.ReadFile(filepath.Join(dir, "package.json")) // empty if BullMQ is not installed
	for name, text := range map[string][]byte{"role.mjs": bullRole, "package.json": bullPackage} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return "", fmt.Errorf("a directory for BullMQ: %w", err)
		}
	}
	role := filepath.Join(dir, "role.mjs")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "bullmq")); err == nil && bytes.Equal(had, bullPackage) {
		return role, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installWithin, fmt.Errorf("npm did not end within %v", installWithin))
	defer cancel()
	_, err = done(ctx, child.Options{Name: "npm install", Path: "npm", Args: []string{"install", "--no-package-lock", "--no-audit", "--no-fund"}, Dir: dir})
	return role, err
}
