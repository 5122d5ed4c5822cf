package top

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"golang.org/x/term"
)

// Options of Run.
type Options struct {
	In, Out    *os.File // a terminal
	Connection *connect.Connection
	Source     *Source
	View       View
	Every      time.Duration // the time between two frames
}

// errNoAPI returns the error for an API that no replica dispatches.
func errNoAPI(api string) error { return fmt.Errorf("no replica dispatches an api %q", api) }

// ErrPanic reports that a goroutine of Run has panicked.
var ErrPanic = errors.New("weir top has a defect: please report it")

// resizeEvery is how often Run reads the terminal's size, because some systems do not signal a change.
const resizeEvery = 250 * time.Millisecond

// Run shows frames until the user quits, ctx ends, or the terminal closes. When it returns it restores the terminal,
// even after a panic.
func Run(ctx context.Context, o Options) (err error) {
	restore, err := takeTerminal(o.In, o.Out)
	if err != nil {
		return err
	}
	defer restore()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &screen{Options: o, frames: make(chan answer, 1), said: make(chan string, 1), failed: make(chan error, 1), wake: make(chan struct{}, 1)}
	keys := make(chan rune)
	s.goes(func() { s.readKeys(ctx, keys) })
	s.goes(func() { s.ask(ctx) })
	return s.loop(ctx, keys)
}

// answer is a frame, or the error that occurred instead.
type answer struct {
	frame *Frame
	err   error
}

// screen is the state of Run.
type screen struct {
	Options
	frames chan answer
	said   chan string // the outcome of an action
	failed chan error
	wake   chan struct{} // a value makes ask fetch the next frame at once
	frame  *Frame
	busy   bool // an action is under way
	drawn  string
}

// goes runs a part of the screen in a goroutine. If the part panics, Run ends and restores the terminal.
func (s *screen) goes(part func()) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				s.fail(fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack()))
			}
		}()
		part()
	}()
}

func (s *screen) fail(err error) {
	select {
	case s.failed <- err:
	default: // another error came first
	}
}

func (s *screen) loop(ctx context.Context, keys <-chan rune) error {
	resize := time.NewTicker(resizeEvery)
	defer resize.Stop()
	for {
		if err := s.draw(); err != nil {
			return err
		}
		select {
		case key := <-keys:
			if word := s.View.Press(key); word.Deed == Quit {
				return nil
			} else if word.Deed != Nothing {
				s.say(ctx, word)
			}
		case a := <-s.frames:
			if s.View.Trouble = ""; a.err != nil {
				s.View.Trouble = a.err.Error()
			} else {
				s.frame = a.frame
			}
		case s.View.Said = <-s.said:
			s.busy = false
			select {
			case s.wake <- struct{}{}:
			default:
			}
		case <-resize.C:
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// ask fetches frames until ctx ends.
func (s *screen) ask(ctx context.Context) {
	for {
		f, err := s.Source.Next(ctx)
		select {
		case s.frames <- answer{f, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(s.Every):
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// sayWait bounds how long an action may wait for all replicas.
const sayWait = 30 * time.Second

// say pauses or resumes in a goroutine of its own, because the replicas may take seconds. It refuses if another action
// is still under way.
func (s *screen) say(ctx context.Context, w Word) {
	if s.busy {
		s.View.Said = "one thing at a time: the last is still being put in force"
		return
	}
	s.busy, s.View.Said = true, fmt.Sprintf("%s %s …", w.Deed, w.about())
	s.goes(func() {
		limited, cancel := context.WithTimeout(ctx, sayWait)
		defer cancel()
		text := fmt.Sprintf("%s %s: done", w.Deed, w.about())
		if err := s.tell(limited, w); err != nil {
			text = fmt.Sprintf("%s %s: %s", w.Deed, w.about(), visible(err.Error()))
		}
		select {
		case s.said <- text:
		case <-ctx.Done():
		}
	})
}

func (s *screen) tell(ctx context.Context, w Word) error {
	o, err := admin.NewOperatorCommand(ctx, s.Connection, cli.User(), w.API, w.Key)
	if err != nil {
		return err
	}
	if w.Deed == Pause {
		return o.Pause(ctx, s.Connection, io.Discard, admin.Pausing{Why: "weir top"})
	}
	return o.Resume(ctx, s.Connection, io.Discard)
}

// draw writes the whole screen in one write, if the screen has changed.
func (s *screen) draw() error {
	width, height, err := term.GetSize(int(s.Out.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	lines := s.View.Draw(s.frame, width, height)
	text := "\x1b[H" + strings.Join(lines[:min(len(lines), height)], "\x1b[K\r\n") + "\x1b[K\x1b[J"
	if text == s.drawn {
		return nil
	}
	s.drawn = text
	if _, err := s.Out.WriteString(text); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// readKeys sends the pressed keys to keys until ctx ends or the input ends.
func (s *screen) readKeys(ctx context.Context, keys chan<- rune) {
	in := bufio.NewReader(s.In)
	for {
		key, err := readKey(in)
		if err != nil {
			s.fail(nil) // the terminal is closed
			return
		}
		select {
		case keys <- key:
		case <-ctx.Done():
			return
		}
	}
}

// sequences maps the sequences that terminals send after ESC[ or ESC O to keys without a letter.
var sequences = map[string]rune{
	"A": keyUp, "B": keyDown, "H": keyHome, "F": keyEnd, "5~": keyPageUp, "6~": keyPageDown, "1~": keyHome, "4~": keyEnd, "7~": keyHome, "8~": keyEnd,
}

// readKey reads one key. A terminal sends a sequence at once, so an escape character with nothing after it is the key
// Esc.
func readKey(in *bufio.Reader) (rune, error) {
	key, _, err := in.ReadRune()
	if err != nil || key != keyEscape || in.Buffered() == 0 {
		return key, err
	}
	if begins, err := in.ReadByte(); err != nil || begins != '[' && begins != 'O' {
		return 0, err // Alt with a letter; it is ignored
	}
	var sequence strings.Builder
	for in.Buffered() > 0 && sequence.Len() < 16 {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if sequence.WriteByte(b); b >= '@' {
			break
		}
	}
	return sequences[sequence.String()], nil
}

// takeTerminal makes the terminal send each key at once and show a separate screen. restore undoes both changes.
func takeTerminal(in, out *os.File) (restore func(), err error) {
	was, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("weir top needs a terminal to read from: %w", err)
	}
	if _, err := out.WriteString("\x1b[?1049h\x1b[?25l"); err != nil {
		_ = term.Restore(int(in.Fd()), was)
		return nil, fmt.Errorf("write to the terminal: %w", err)
	}
	return func() {
		_, _ = out.WriteString("\x1b[0m\x1b[?25h\x1b[?1049l") // ignores an error: the terminal may be closed
		_ = term.Restore(int(in.Fd()), was)
	}, nil
}
