package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/terminal"
)

// How a progress bar looks, and how often it is drawn.
const (
	barWidth    = 30
	redrawAfter = 100 * time.Millisecond
)

// ProgressBar shows how far long work is, where somebody is looking. It is safe for concurrent use.
type ProgressBar struct {
	out  io.Writer // nil: nobody looks
	what string

	mu    sync.Mutex // of of and drawn
	of    int        // 0: nobody knows
	drawn time.Time
}

// NewProgressBar makes a bar for a number of things, which may be told later; 0 is unknown, and only counts. It draws nothing where nobody looks at out.
func NewProgressBar(out io.Writer, what string, of int) *ProgressBar {
	if !terminal.Watched(out) {
		out = nil
	}
	return &ProgressBar{out: out, what: what, of: max(0, of)}
}

// SetTotal says how many there are, once that is known.
func (p *ProgressBar) SetTotal(of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of = max(0, of)
}

// Show draws the bar, but not too often.
func (p *ProgressBar) Show(done int) { p.ShowWith(done, "") }

// ShowWith is Show with a text behind the bar.
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

// Clear takes the bar away.
func (p *ProgressBar) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
