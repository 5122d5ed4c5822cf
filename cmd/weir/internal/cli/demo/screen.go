package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli/terminal"
)

const (
	redrawEvery = 100 * time.Millisecond
	repeatEvery = 2 * time.Second // used if the progress line cannot be redrawn
)

// screen writes the output of the demo: to a terminal, or as plain lines to a file.
type screen struct {
	w      io.Writer
	nats   string // weir's preferred address for NATS
	live   bool   // whether lines can be redrawn
	colour bool
	start  time.Time
	drawn  time.Time // when the progress line was last written
	dirty  bool      // the progress line is shown and must be overwritten
}

func newScreen(w io.Writer, nats string) *screen {
	s := &screen{w: w, nats: nats, start: time.Now()}
	s.live = terminal.Watched(w) && os.Getenv("TERM") != "dumb"
	s.colour = s.live && terminal.Styled()
	return s
}

// say writes one line. It ignores errors: if the terminal closes, a signal ends the demo.
func (s *screen) say(format string, args ...any) {
	s.settle()
	_, _ = fmt.Fprintf(s.w, format+"\n", args...)
}

// tell writes one line that begins with the time since the start.
func (s *screen) tell(format string, args ...any) {
	s.say(s.elapsed()+format, args...)
}

// more writes one line that continues the last one, without a time.
func (s *screen) more(format string, args ...any) {
	s.say(strings.Repeat(" ", len(s.elapsed()))+format, args...)
}

func (s *screen) elapsed() string { return fmt.Sprintf("%5.1f s  ", time.Since(s.start).Seconds()) }

// settle removes the progress line.
func (s *screen) settle() {
	if s.dirty {
		_, _ = io.WriteString(s.w, "\r\x1b[K")
		s.dirty = false
	}
}

func (s *screen) progress(p progress) {
	every := repeatEvery
	if s.live {
		every = redrawEvery
	}
	if time.Since(s.drawn) < every {
		return
	}
	const width = 10
	full := width * p.called / max(1, p.ofAccepted)
	line := fmt.Sprintf("%s[%s%s] %d/%d called | last second %d (most %d) | 429s %d | %s", s.elapsed(),
		strings.Repeat("#", full), strings.Repeat(".", width-full), p.called, p.ofAccepted, p.inLast, p.most, p.limited, dollars(p.charged))
	if s.live {
		_, _ = io.WriteString(s.w, "\r\x1b[K"+terminal.Cut(line, terminal.Width(s.w)-1))
		s.dirty = true
	} else {
		_, _ = io.WriteString(s.w, line+"\n")
	}
	s.drawn = time.Now()
}

func (s *screen) title() {
	s.say("%s: %d jobs at once, for a paid api that lets each customer call %d times", s.bold("weir demo"), burstJobs, rate)
	s.say("a second. It takes 15 seconds, uses nothing but this machine and leaves nothing.\n")
}

func (s *screen) stage(d *demo) {
	s.say("  the paid api  %s, a fake one: %s a call;", d.api.URL(), dollars(callPrice))
	s.say("                a customer's call number %d in a second is answered 429", rate+1)
	s.say("  weir          nats://%s, a process of its own (pid %d)", d.weir.NATS, d.weir.PID())
	s.say("                as `weir serve` starts it anywhere")
	s.say("  its rules     each customer: %d calls a second, at most %d jobs waiting;", rate, capacity)
	s.say("                a call may arrive %v late without one too many in any second\n", jitter)
}

func (s *screen) burst(b *burst, letters, events int) {
	first, last := b.accepted[0], b.accepted[len(b.accepted)-1]
	s.tell("%s A program sends %d jobs for customer %s within %v.", s.bold("A burst."), len(b.sent), b.key, round(b.sent[len(b.sent)-1]))
	s.more("%d accepted: on disk, each with a receipt. The first is number %d in the", len(b.accepted), first.Position)
	s.more("queue, its call due %s; the last is number %d, due %s.", inWords(first.ETAms), last.Position, inWords(last.ETAms))
	s.more("%d refused: the queue is full, and their sender is told 429 at once.", b.throttled)
	s.more("None is gone: %d are kept as dead letters, and %d events tell it to", letters, events)
	s.more("listeners on weir.events.throttled.>")
	s.tell("%s Another program sends a job for customer %s every %v.", s.bold("A neighbour."), calmKey, trickleEvery)
	s.tell("%s No faster than the api allows, no slower either:", s.bold("The calls."))
}

func inWords(ms int64) string {
	if ms < 50 {
		return "now"
	}
	return fmt.Sprintf("in %.1f s", float64(ms)/1000)
}

func (s *screen) killed(pid, left int) {
	s.tell("%s weir (pid %d) is killed during a call, %d jobs still to go.", s.bold("kill -9."), pid, left)
}

func (s *screen) restarted(pid int, after time.Duration) {
	s.tell("Started again (pid %d), it takes jobs %.2f s after the kill.", pid, after.Seconds())
}

func (s *screen) resumed(after time.Duration) {
	s.tell("Its next call comes %.2f s after the kill, and on it goes at its rate.", after.Seconds())
}

func (s *screen) drained(busy, calm int) {
	s.tell("All %d jobs of %s and %d of %s have been called.\n", busy, busyKey, calm, calmKey)
}

func (s *screen) without(w directly) {
	s.say("%s, the same %d calls straight at this api (computed, not tried):", s.bold("Without weir"), w.jobs)
	s.say("  %d served and %d answered 429. Each tried again after the second the api asks", w.served, w.jobs-w.served)
	s.say("  for: %d times 429 in %.0f s. Vendors that charge for refused calls, too, bill", w.refusals, w.allServed.Seconds())
	s.say("  %s for nothing; others lock the account.\n", dollars(int64(w.refusals)*callPrice))
}

// verdict writes the result of the check, line by line.
func (s *screen) verdict(r *report) {
	s.say("%s: the receipts held against the ledger that the api kept of its own", s.bold("The check"))
	marks := map[bucket.Outcome]string{bucket.Pass: "ok  ", bucket.Inconclusive: "?   ", bucket.Fail: s.paint("31;1", "FAIL")}
	for _, f := range r.findings() {
		s.say("  %s  %-12s  %s", marks[f.outcome], f.name, f.text)
	}
	switch r.Verdict {
	case bucket.Pass:
		s.say("%s\n", s.paint("32;1", "PASS"))
	case bucket.Inconclusive:
		s.say("%s: this machine let programs wait for up to %v, so the api's stamps are no", s.paint("33;1", "INCONCLUSIVE"), round(r.HeldUp))
		s.say("proof. Try again when it is less busy.\n")
	default:
		s.say("%s\n", s.paint("31;1", "FAIL"))
	}
}

// invite writes what the user can try while weir keeps serving.
func (s *screen) invite(natsAddr, httpAddr string) {
	url, server, setting := "nats://"+natsAddr, "", ""
	if natsAddr != s.nats {
		server = " -s " + url
	}
	if natsAddr != s.nats || os.Getenv("WEIR_NATS_URL") != "" {
		setting = "WEIR_NATS_URL=" + url + " "
	}
	s.say("weir keeps running until Ctrl-C; its console is at http://%s/.", httpAddr)
	s.say("In another terminal, try:\n")
	s.say(`  nats request%s weir.jobs.demo.you '{"hello":"weir"}'`, server)
	s.say(`  %s%s submit demo you --data '{"hello":"weir"}' --wait`, setting, os.Args[0])
	s.say("  %s%s dead ls\n", setting, os.Args[0])
}

func (s *screen) bold(text string) string { return s.paint("1", text) }

func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
