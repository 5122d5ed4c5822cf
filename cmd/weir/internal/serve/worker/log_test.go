package worker

import (
	"bytes"
	"errors"
	golog "log"
	"log/slog"
	"strings"
	"testing"
)

// TestLogLibraries checks that weir's log has the messages of libraries, without the parts of answers that they quote.
func TestLogLibraries(t *testing.T) {
	var said bytes.Buffer
	was, flags := golog.Writer(), golog.Flags()
	defer golog.SetFlags(flags)
	defer golog.SetOutput(was)
	LogLibraries(slog.New(slog.NewTextHandler(&said, nil)))
	golog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "swordfish", nil)
	golog.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "another", nil)
	golog.Print("plain words")
	for _, want := range []string{"level=WARN", "starting with …", "repeated its message", "times=1", "plain words"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %s: %s", want, said.String())
		}
	}
	if strings.Contains(said.String(), "swordfish") {
		t.Errorf("it tells the answer: %s", said.String())
	}
}

// TestNoErrorIsNotTold checks that a log line has no attribute err if the error is nil.
func TestNoErrorIsNotTold(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: written}))
	var none error
	log.Info("ended", "task", "x", "err", none)
	log.With("err", none).Info("ended", slog.Group("of", "err", none))
	if strings.Contains(said.String(), "err=") {
		t.Errorf("%s", said.String())
	}
	log.Log(t.Context(), levelAlways, "failed", "err", errors.New("full"))
	if !strings.Contains(said.String(), "err=full") || !strings.Contains(said.String(), "level=INFO msg=failed") {
		t.Errorf("%s", said.String())
	}
}
