package soak

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"weir/ingest/await"
)

// TestDeadCodeIsLeftOut: where something that is linked in looks methods up by a name it has at run time, as templates do, the linker
// keeps every exported method of every type: a quarter of the binary.
func TestDeadCodeIsLeftOut(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(await.Build(t), "go", "build", "-trimpath", "-ldflags=-dumpdep", "-o", os.DevNull, "weir/cmd/weir").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%.2000s", err, out)
	}
	reached, lines := map[string]string{}, 0 // by symbol: the first one that reaches it
	for line := range strings.Lines(string(out)) {
		from, to, is := strings.Cut(strings.TrimSpace(line), " -> ")
		if !is {
			continue
		}
		lines++
		from, to = plainSymbol(from), strings.TrimSpace(to)
		if _, known := reached[plainSymbol(to)]; !known {
			reached[plainSymbol(to)] = from
		}
		if strings.HasSuffix(to, "<ReflectMethod>") {
			way := to
			for at := from; at != "" && at != "main.main" && len(way) < 3000; at = reached[at] {
				way = at + " -> " + way
			}
			t.Fatalf("all exported methods are linked in, because of\n%s", way)
		}
	}
	if lines < 10_000 || reached["weir/cmd/weir/internal/cli/commands.Root"] == "" {
		t.Errorf("the linker told of %d references, and not of weir/cmd/weir/internal/cli/commands.Root: mend this test", lines)
	}
}

// plainSymbol is a symbol without what the linker says of it.
func plainSymbol(symbol string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(symbol), " <")
	return name
}
