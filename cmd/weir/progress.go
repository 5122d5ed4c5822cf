package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir/internal/terminal"
)

// Looks of a progress bar.
const (
	barWidth    = 30
	redrawAfter = 100 * time.Millisecond
)

// progressBar shows how far long work is, where somebody is looking. It is safe for concurrent use.
type progressBar struct {
	out  io.Writer // nil: nobody looks
	what string
	of   int

	mu    sync.Mutex
	drawn time.Time
}

func newProgressBar(out io.Writer, what string, of int) *progressBar {
	if !terminal.Watched(out) {
		out = nil
	}
	return &progressBar{out: out, what: what, of: max(1, of)}
}

// at draws the bar, but not too often.
func (p *progressBar) at(done int) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.drawn) >= redrawAfter {
		p.drawn = now
		full := min(barWidth, done*barWidth/p.of)
		_, _ = fmt.Fprintf(p.out, "\r%s [%s%s] %d of %d\x1b[K", p.what, strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), done, p.of)
	}
}

// clear takes the bar away.
func (p *progressBar) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil && !p.drawn.IsZero() {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
