package torture

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// record is what the run did to weir, and what it saw. It is safe for concurrent use.
type record struct {
	to io.Writer // receives lines of progress

	mu        sync.Mutex // guards the fields below
	kills     []judge.Kill
	counts    map[plan.Kind]int
	ways      map[plan.Way]int // how configurations took effect
	timeline  plan.Timeline
	memory    []judge.MemoryLife
	missed    int // chosen points that were not reached in time
	byThem    int // how often weir ended by itself
	notes     []string
	setBacks  []judge.SetBack
	damages   []judge.Damage
	heard     judge.Heard
	unnoticed int // restored backups that weir did not refuse
}

func newRecord(to io.Writer) *record {
	return &record{to: to, counts: map[plan.Kind]int{}, ways: map[plan.Way]int{}}
}

// talk writes a line of progress.
func (r *record) talk(format string, args ...any) {
	_, _ = fmt.Fprintf(r.to, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// note stores a sentence for the report.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// noted returns the notes so far.
func (r *record) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

func (r *record) count(k plan.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[k]++
}

func (r *record) killed(k judge.Kill) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills = append(r.kills, k)
}

// endedByItself records an unplanned end of a weir. err is not nil if weir ended before it was ready. Such an end is
// counted, but no line of progress is written.
func (r *record) endedByItself(p *process, err error) {
	felled := p.felled.Load()
	if !felled {
		r.mu.Lock()
		r.byThem++
		r.mu.Unlock()
	}
	if err == nil && !felled {
		r.talk("weir ended by itself (%s): %s", p.State(), lastLine(p.Tail()))
	}
}

// exits returns how often a weir ended by itself.
func (r *record) exits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byThem
}

// miss records that a chosen point was not reached.
func (r *record) miss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missed++
}

// starts records the first configuration of a run.
func (r *record) starts(t plan.Terms) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeline = plan.Timeline{{Terms: t}}
}

// begins records a configuration that may take effect from now on, and returns its number.
func (r *record) begins(t plan.Terms) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeline = append(r.timeline, plan.InForce{Terms: t, From: time.Now()})
	return len(r.timeline) - 1
}

// follows records that the newest configuration is certainly in force now.
func (r *record) follows(w plan.Way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeline[len(r.timeline)-1].By = time.Now()
	r.ways[w]++
}

// configurations returns how many configurations there were.
func (r *record) configurations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.timeline)
}

func (r *record) lived(l judge.MemoryLife) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory = append(r.memory, l)
}

func (r *record) wasSetBack(s judge.SetBack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setBacks = append(r.setBacks, s)
}

// passedOver records that a backup was restored and weir started without refusing it.
func (r *record) passedOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unnoticed++
}

func (r *record) damaged(d judge.Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.damages = append(r.damages, d)
}

// Lines of weir's log. These words are part of its promises.
var (
	saysRestored = "the store was restored from a backup"
	saysUnnamed  = regexp.MustCompile(`(discarded messages|marks of calls are lost|too large to search).*stream=(WEIR_\w+)`)
)

// hear reads a line of a log.
func (r *record) hear(line string) {
	switch m := saysUnnamed.FindStringSubmatch(line); {
	case strings.Contains(line, saysRestored):
		r.mu.Lock()
		r.heard.Restored++
		r.mu.Unlock()
	case m != nil:
		r.mu.Lock()
		if r.heard.Unnamed == nil {
			r.heard.Unnamed = map[string]bool{}
		}
		r.heard.Unnamed[m[2]] = true
		r.mu.Unlock()
	}
}

// testify adds the record so far to the evidence.
func (r *record) testify(e *judge.Evidence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Kills, e.Faults, e.Ways, e.Timeline = slices.Clone(r.kills), maps.Clone(r.counts), maps.Clone(r.ways), slices.Clone(r.timeline)
	e.Memory, e.Missed, e.ByThem, e.Notes = slices.Clone(r.memory), r.missed, r.byThem, slices.Clone(r.notes)
	e.SetBacks, e.Damages, e.Unnoticed = slices.Clone(r.setBacks), slices.Clone(r.damages), r.unnoticed
	e.Heard = r.heard // shared: it also gets what weir logs later
}
