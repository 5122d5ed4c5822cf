package recorder

import (
	"bytes"
	"testing"
	"time"
)

// BenchmarkCall measures all that is noted of one call, with an answer of a kilobyte.
func BenchmarkCall(b *testing.B) {
	r := open(b, b.TempDir(), Usual)
	a := answerFor(1)
	a.Body = bytes.Repeat([]byte("x"), 1024)
	c := callOf(1)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		c.Seq++
		e := r.Prepare(c, Entry{})
		e.Begin(now, 1)
		e.Left()
		e.Answer(a)
		e.Settle()
	}
}

// TestNotingAllocatesNothing checks what the benchmark shows.
func TestNotingAllocatesNothing(t *testing.T) {
	r := open(t, t.TempDir(), small)
	a, c, now := answerFor(1), callOf(1), time.Now()
	if n := testing.AllocsPerRun(100, func() {
		c.Seq++
		e := r.Prepare(c, Entry{})
		e.Begin(now, 1)
		e.Left()
		e.Answer(a)
		e.Settle()
	}); n > 0 {
		t.Errorf("a call allocates %v times", n)
	}
}
