package worker

import (
	golog "log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/config"
)

// levelAlways is of lines that are logged at every level, as information: on port 0 nothing else tells the address.
const levelAlways = slog.Level(100)

// NewLogger is the log of a serving weir, on stderr, as the settings ask for it.
func NewLogger(s *config.Settings) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: written}
	if s.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// written is an attribute as it stands in a line. An error that there was none is left out.
func written(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == levelAlways:
		a.Value = slog.AnyValue(slog.LevelInfo)
	case a.Key == "err" && a.Value.Any() == nil:
		return slog.Attr{}
	}
	return a
}

// LogWarnings logs what a file says and probably does not mean; of the environment no file is named.
func LogWarnings(log *slog.Logger, file string, warnings []config.Problem) {
	for _, p := range warnings {
		log.Warn("configuration", "problem", p.In(file))
	}
}

// LogLibraries has what libraries say in Go's own log stand in this one. That log is the process's: there is one.
func LogLibraries(log *slog.Logger) {
	golog.SetFlags(0)
	golog.SetPrefix("")
	golog.SetOutput(&libraries{log: log})
}

// saidAgain is how long a library's words are not repeated.
const saidAgain = time.Minute

// libraries takes Go's own log, without what is quoted in it: net/http quotes answers there.
type libraries struct {
	log *slog.Logger

	mu   sync.Mutex // guards what follows
	last string     // that was said
	at   time.Time
	more int // times that it was said since
}

// Write implements io.Writer. It is given a line at a time.
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
		l.log.Warn("a library has said so again", "text", l.last, "times", l.more)
	}
	l.last, l.at, l.more = text, time.Now(), 0
	l.log.Warn("a library says", "text", text)
	return len(line), nil
}
