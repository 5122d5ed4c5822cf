package embedded

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func options(t *testing.T, listen, dir string) Options {
	t.Helper()
	return Options{Listen: listen, Dir: dir, MaxPayload: 1 << 20, Log: slog.New(slog.DiscardHandler)}
}

func TestTakenPortIsAnErrorAtOnce(t *testing.T) {
	first, err := Start(t.Context(), options(t, "127.0.0.1:0", t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Shutdown)
	_, err = Start(t.Context(), options(t, first.Addr(), t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), first.Addr()) {
		t.Errorf("a taken port gave %v", err)
	}
}

func TestOneWeirADirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err == nil || !strings.Contains(err.Error(), "another weir") {
		t.Errorf("a second server in one directory gave %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "weir.lock")); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err == nil || !strings.Contains(err.Error(), "another weir") {
		t.Errorf("a second server in one directory, whose lock file was deleted, gave %v", err)
	}
	first.Shutdown()
	second, err := Start(t.Context(), options(t, "127.0.0.1:0", dir))
	if err != nil {
		t.Fatalf("the directory is not free after a shutdown: %v", err)
	}
	second.Shutdown()
}
