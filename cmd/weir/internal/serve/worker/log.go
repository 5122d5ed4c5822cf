package worker

import (
	golog "log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/problem"
)

// levelAlways is the level of lines that appear at every configured log level. They are written as INFO. The address of
// a listener is such a line, because with port 0 nothing else reports it.
const levelAlways = slog.Level(100)

// NewLogger returns the logger of `weir serve`. It writes to stderr, with the level and format of the settings.
func NewLogger(s *environment.Settings) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: written}
	if s.LogFormat == environment.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// written returns an attribute as it appears in a line. It leaves out a nil error.
func written(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == levelAlways:
		a.Value = slog.AnyValue(slog.LevelInfo)
	case a.Key == "err" && a.Value.Any() == nil:
		return slog.Attr{}
	}
	return a
}

// LogWarnings logs the warnings about a configuration file: statements that are valid and probably mistakes. For
// warnings about the environment file is "".
func LogWarnings(log *slog.Logger, file string, warnings []problem.Problem) {
	for _, p := range warnings {
		log.Warn("configuration", "problem", p.In(file))
	}
}

// LogLibraries redirects Go's standard log, to which libraries write, to log. It changes the standard log of the whole
// process.
func LogLibraries(log *slog.Logger) {
	golog.SetFlags(0)
	golog.SetPrefix("")
	golog.SetOutput(&libraries{log: log})
}

// saidAgain is how long a message that a library repeats is suppressed.
const saidAgain = time.Minute

// libraries receives Go's standard log and removes quoted text, because net/http quotes answers of APIs in its
// messages.
type libraries struct {
	log *slog.Logger

	mu   sync.Mutex // guards last, at and more
	last string     // the last message
	at   time.Time
	more int // how often last was repeated since at
}

// Write implements io.Writer. It receives one line at a time.
func (l *libraries) Write(line []byte) (int, error) {
	text, _, quotes := strings.Cut(strings.TrimSpace(string(line)), `"`)
	if quotes {
		text += "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == l.last && time.Since(l.at) < saidAgain {
		l.more++
		return len(line), nil
	}
	if l.more > 0 {
		l.log.Warn("a library repeated its message", "text", l.last, "times", l.more)
	}
	l.last, l.at, l.more = text, time.Now(), 0
	l.log.Warn("a library reports", "text", text)
	return len(line), nil
}
