package weirtest

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"weir/ingest/await"
)

// Repository is the path from a test's directory to the root of the repository.
var Repository = filepath.Join("..", "..", "..", "..")

var DeployDir = filepath.Join(Repository, "deploy")

// Patience is how long a test waits for an event before it fails. It allows for a busy machine.
const Patience = await.Patience

func TestLog(t *testing.T) *slog.Logger {
	w := io.Discard
	// Without -v the log is discarded, for programs that read the tests' output.
	if flag.Lookup("test.v").Value.String() == "true" {
		w = t.Output()
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func MustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// CopyTree copies a directory with cp -a.
func CopyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp -a: %v: %s", err, out)
	}
}
