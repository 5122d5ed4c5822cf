package embedded

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger sends the server's log to slog. What the server calls notice is debug to a user of weir.
type logger struct {
	log   *slog.Logger
	fatal chan struct{} // gets a value when the server gives up
	mu    sync.Mutex
	last  string
}

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, v ...any) { l.keep(fmt.Sprintf(format, v...)) }

// Fatalf implements server.Logger. The worker decides what ends the process.
func (l *logger) Fatalf(format string, v ...any) {
	l.keep(fmt.Sprintf(format, v...))
	select {
	case l.fatal <- struct{}{}:
	default:
	}
}

// Debugf implements server.Logger.
func (l *logger) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *logger) Tracef(string, ...any) {}

func (l *logger) keep(text string) {
	l.mu.Lock()
	l.last = text
	l.mu.Unlock()
	l.log.Error(text)
}

func (l *logger) lastError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return "no error was told"
	}
	return l.last
}
