package worker

import (
	"log/slog"
	"os"

	"weir/cmd/weir/internal/config"
)

// levelAlways is of lines that are logged at every level, as information: on port 0 nothing else tells the address.
const levelAlways = slog.Level(100)

// NewLogger is the log of a serving weir, on stderr, as the settings ask for it.
func NewLogger(s *config.Settings) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == levelAlways {
			a.Value = slog.AnyValue(slog.LevelInfo)
		}
		return a
	}}
	if s.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// LogWarnings logs what a file says and probably does not mean; of the environment no file is named.
func LogWarnings(log *slog.Logger, file string, warnings []config.Problem) {
	for _, p := range warnings {
		log.Warn("configuration", "problem", p.In(file))
	}
}
