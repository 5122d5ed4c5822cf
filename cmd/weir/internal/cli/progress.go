package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/cli/terminal"
)

// The width of a progress bar in characters, and the shortest time between two drawings.
const (
	barWidth    = 30
	redrawAfter = 100 * time.Millisecond
)

// ProgressBar shows the progress of long work on a terminal. It is safe for concurrent use.
type ProgressBar struct {
	out  io.Writer // nil: draw nothing
	what string

	mu    sync.Mutex // guards of and drawn
	of    int        // the total; 0: unknown
	drawn time.Time
}

// NewProgressBar returns a bar for work on of things. If of is 0, the total is unknown, and until SetTotal the bar only
// shows a count. If out is not a terminal, the bar draws nothing.
func NewProgressBar(out io.Writer, what string, of int) *ProgressBar {
	if !terminal.Watched(out) {
		out = nil
	}
	return &ProgressBar{out: out, what: what, of: max(0, of)}
}

// SetTotal sets the total.
func (p *ProgressBar) SetTotal(of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of = max(0, of)
}

// Show draws the bar, at most ten times a second.
func (p *ProgressBar) Show(done int) { p.ShowWith(done, "") }

// ShowWith is Show with a text after the bar.
func (p *ProgressBar) ShowWith(done int, tail string) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.drawn) >= redrawAfter {
		p.drawn = now
		if p.of == 0 {
			_, _ = fmt.Fprintf(p.out, "\r%s %d%s\x1b[K", p.what, done, tail)
			return
		}
		full := min(barWidth, done*barWidth/p.of)
		_, _ = fmt.Fprintf(p.out, "\r%s [%s%s] %d of %d%s\x1b[K", p.what, strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), done, p.of, tail)
	}
}

// Clear removes the bar.
func (p *ProgressBar) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
