package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestImportsPointDown holds the order of the house: cmd, dispatcher, deadletter, bucket, ingest. Nobody imports what
// stands above.
func TestImportsPointDown(t *testing.T) {
	level := map[string]int{"ingest": 0, "bucket": 1, "deadletter": 2, "dispatcher": 3, "cmd": 4}
	eachImport(t, func(file, path string) {
		to, ok := strings.CutPrefix(path, "weir/")
		if !ok {
			return
		}
		from, _, _ := strings.Cut(file, "/")
		to, _, _ = strings.Cut(to, "/")
		if level[to] > level[from] {
			t.Errorf("%s imports %s: imports point down only", file, path)
		}
	})
}

// TestHeavyDependenciesHaveOneHome: each of these is a decision that one package hides from the others.
func TestHeavyDependenciesHaveOneHome(t *testing.T) {
	homes := map[string][]string{
		"github.com/nats-io/nats-server/": {"cmd/weir/internal/embedded/"},
		"github.com/redis/go-redis/":      {"bucket/redisstore/"},
		"go.yaml.in/yaml/":                {"cmd/weir/internal/config/"},
		"gopkg.in/yaml":                   {"cmd/weir/internal/config/"},
		"github.com/kelseyhightower/":     {"cmd/weir/internal/config/"},
		"github.com/spf13/cobra":          {"cmd/weir/"},
		"github.com/Shopify/toxiproxy/":   {"cmd/weir/internal/torture/"},
		"github.com/rs/zerolog":           {"cmd/weir/internal/torture/"},
		"embed":                           {"cmd/weir/internal/console/"},
		"github.com/prometheus/client_golang/prometheus/promhttp": {"cmd/weir/internal/console/"},
	}
	seen := map[string]bool{}
	eachImport(t, func(file, path string) {
		for dependency, allowed := range homes {
			if path != dependency && !strings.HasPrefix(path, dependency) || strings.HasSuffix(file, "_test.go") {
				continue
			}
			seen[dependency] = true
			if !strings.HasPrefix(file, allowed[0]) {
				t.Errorf("%s imports %s, whose home is %s", file, path, allowed[0])
			}
		}
	})
	for _, used := range []string{"github.com/nats-io/nats-server/", "github.com/redis/go-redis/", "go.yaml.in/yaml/"} {
		if !seen[used] {
			t.Errorf("nobody imports %s any more: mend this test", used)
		}
	}
}

// TestOthersAreOnlyMeasured: what weir is compared with stands beside it in one benchmark, and in nothing that is shipped.
func TestOthersAreOnlyMeasured(t *testing.T) {
	homes := map[string][]string{
		"github.com/go-redis/redis_rate/": {"bucket/redisstore/beside_test.go"},
		"github.com/throttled/throttled/": {"bucket/redisstore/beside_test.go"},
		"golang.org/x/time/rate":          {"bucket/redisstore/beside_test.go", "bucket/bench_test.go"},
	}
	eachImport(t, func(file, path string) {
		for dependency, allowed := range homes {
			if strings.HasPrefix(path, dependency) && !slices.Contains(allowed, file) {
				t.Errorf("%s imports %s, whose home is %v", file, path, allowed)
			}
		}
	})
}

func eachImport(t *testing.T, do func(file, path string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root && d.Name() != ".." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, i := range parsed.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			do(filepath.ToSlash(file), imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
