package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// logger writes the server's log to slog. It writes the server's notices at the level debug, because they mean nothing
// to a user of weir.
type logger struct {
	log   *slog.Logger
	fatal chan struct{} // receives a value when the server cannot continue
	// frozen receives the server's message that it could not write to a stream's files. The server writes nothing more
	// to that stream until it is restarted.
	frozen     chan string
	mu         sync.Mutex // guards last, rebuilding and kinds
	last       string
	rebuilding bool // an index is being rebuilt
	kinds      map[string]*kind
}

// kind is a group of messages about clients that use the same words. A client can cause any number of such messages. So
// weir logs one message of a kind, and after that only, every kindsEvery, how many more there were.
type kind struct{ more int }

// Bounds of messages about clients.
const (
	kindsEvery = 10 * time.Second
	mostKinds  = 32 // further kinds share one kind
)

// kindOf returns the words of a message about a client, without the names of the client and of other objects. It
// returns "" if the message is not about a client.
func kindOf(text string) string {
	_, said, ok := strings.Cut(text, " - cid:")
	if !ok {
		return ""
	}
	if _, said, ok = strings.Cut(said, " - "); !ok {
		return ""
	}
	for strings.HasPrefix(said, `"`) { // the client's own name
		_, rest, ok := strings.Cut(said[1:], `" - `)
		if !ok {
			break
		}
		said = rest
	}
	end := strings.IndexFunc(said, func(r rune) bool { return r != ' ' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	if end < 0 {
		end = len(said)
	}
	return strings.TrimSpace(said[:min(end, 40)]) + " " // never empty
}

// repeats reports whether a message of the same kind was logged within kindsEvery. If so, it counts the message.
func (l *logger) repeats(text string, level slog.Level) bool {
	name := kindOf(text)
	if name == "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]*kind{}
	}
	if l.kinds[name] == nil && len(l.kinds) >= mostKinds {
		name = "others "
	}
	if k := l.kinds[name]; k != nil {
		k.more++
		return true
	}
	l.kinds[name] = &kind{}
	time.AfterFunc(kindsEvery, func() { l.tellMore(name, level) })
	return false
}

// tellMore logs how many messages of a kind were suppressed since the last line about them.
func (l *logger) tellMore(name string, level slog.Level) {
	l.mu.Lock()
	more := l.kinds[name].more
	if more == 0 {
		delete(l.kinds, name)
	} else {
		l.kinds[name].more = 0
		time.AfterFunc(kindsEvery, func() { l.tellMore(name, level) })
	}
	l.mu.Unlock()
	if more > 0 {
		l.log.Log(context.Background(), level, "more of the same about clients", "what", strings.TrimSpace(name), "count", more, "within", kindsEvery)
	}
}

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }

// Warnf implements server.Logger. After a kill -9 the server warns about every stream whose index is older than the
// stream's messages, in words that sound like loss. Instead of all these warnings, weir logs one line that says what
// they mean.
func (l *logger) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	switch {
	case strings.HasPrefix(text, "Plaintext passwords detected"): // the password of the user without credentials, which no client uses
		l.log.Debug(text)
		return
	case l.repeats(text, slog.LevelWarn):
		return
	case !outdated(text):
		l.log.Warn(text)
		return
	}
	l.log.Debug(text)
	l.mu.Lock()
	first := !l.rebuilding
	l.rebuilding = true
	l.mu.Unlock()
	if first {
		l.log.Info("the store was not closed in order: rebuilding its index from the messages")
	}
}

// outdated reports whether a warning only says that an index is older than the messages and is rebuilt from them.
func outdated(text string) bool {
	_, text, ok := strings.Cut(text, "] ")
	if !ok {
		return false
	}
	if strings.HasPrefix(text, "Recovering ") && strings.HasSuffix(text, " from index errored: prior state file") {
		return true
	}
	for _, said := range []string{
		"Stream state outdated, ", "Stream state detected prior state, ", "Sourcing state is outdated; ", "TTL state is outdated; ",
		"Message scheduling state is outdated; ",
	} {
		if strings.HasPrefix(text, said) {
			return true
		}
	}
	return false
}

// frozenWords are the words of the server's message when a stream freezes. The server reports a frozen stream in no
// other way. TestFullDisk checks the words.
const frozenWords = " critical write error: "

// Errorf implements server.Logger. A client's mistake, such as a publish that its rights do not allow, is logged as a
// warning, because it is no error of weir.
func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if kindOf(text) != "" {
		if !l.repeats(text, slog.LevelWarn) {
			l.log.Warn(text)
		}
		return
	}
	l.keep(text)
	if _, why, found := strings.Cut(text, frozenWords); found {
		select {
		case l.frozen <- why:
		default: // another stream was first
		}
	}
}

// Fatalf implements server.Logger. It reports to Start that the server cannot continue, and does not end the process.
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
