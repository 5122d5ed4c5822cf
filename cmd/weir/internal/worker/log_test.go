package worker

import (
	"bytes"
	golog "log"
	"log/slog"
	"strings"
	"testing"
)

// TestLogLibraries: what a library says stands in weir's log, and what it quotes of an answer in none.
func TestLogLibraries(t *testing.T) {
	var said bytes.Buffer
	was, flags := golog.Writer(), golog.Flags()
	defer golog.SetFlags(flags)
	defer golog.SetOutput(was)
	LogLibraries(slog.New(slog.NewTextHandler(&said, nil)))
	golog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "swordfish", nil)
	golog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "another", nil)
	golog.Print("plain words")
	for _, want := range []string{"level=WARN", "starting with …", "said so again", "times=1", "plain words"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %s: %s", want, said.String())
		}
	}
	if strings.Contains(said.String(), "swordfish") {
		t.Errorf("it tells the answer: %s", said.String())
	}
}
