package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// way is how a configuration is put in force.
type way string

// The ways.
const (
	byApply   way = "config apply"
	byRestart way = "a changed file"             // which the next start finds, after kill -9
	byReload  way = "a changed file and SIGHUP"  // where weir reloads
	andKill   way = "config apply, then kill -9" // at once, or shortly after
)

// change is a planned change of the configuration.
type change struct {
	setting string
	terms   terms
	way     way
	pause   time.Duration // before it
	kill    time.Duration // andKill: how long after the command's start, or its end
	late    bool          // andKill: after its end
	absent  time.Duration // how long an api that is taken out stays away
}

// changeConfig is how changes are counted.
const changeConfig kind = "configuration changes"

// Bounds of one change.
const (
	appliesWithin = time.Minute // one try of the command
	changesWithin = 3 * time.Minute
)

// changeable are the settings that a run changes: of limits that keys share there are none where two weirs take turns.
func (o *Options) changeable() []setting {
	return slices.DeleteFunc(settings(), func(s setting) bool {
		return s.shared && o.Takeovers > 0 || len(o.Settings) > 0 && !slices.Contains(o.Settings, s.name)
	})
}

// newChanges deals out changes, each from the terms that the one before it left.
func newChanges(r *rand.Rand, o *Options) []change {
	var all []change
	possible := o.changeable()
	ways := []way{byApply, andKill, byRestart, andKill}
	if o.Reloads {
		ways = append(ways, byReload)
	}
	if o.isFleet() {
		ways = []way{byApply}
	}
	r.Shuffle(len(possible), func(i, j int) { possible[i], possible[j] = possible[j], possible[i] })
	now := firstTerms(o)
	for n := range o.ConfigChanges {
		s := possible[n%len(possible)]
		c := change{
			setting: s.name, way: ways[r.IntN(len(ways))], pause: between(r, 100*time.Millisecond, 1500*time.Millisecond),
			kill: between(r, 0, 500*time.Millisecond), late: r.IntN(2) == 0, absent: between(r, 200*time.Millisecond, 1500*time.Millisecond),
		}
		s.change(r, &now)
		c.terms = now
		now.gone = false
		all = append(all, c)
	}
	return all
}

// operator is who changes the configuration of a stage's weir while it runs.
type operator struct{ *stage }

// reconfigure makes the plan's changes one after another.
func (s operator) reconfigure(ctx, faults context.Context) error {
	for n, c := range s.plan.changes {
		if !stream.Sleep(faults, c.pause) {
			return nil
		}
		s.awaitWorker(ctx)
		if err := s.change(ctx, c); err != nil {
			return fmt.Errorf("change %d, %s: %w", n+1, c.setting, err)
		}
		if done := n + 1; done%25 == 0 {
			s.talk("%d of %d changes", done, len(s.plan.changes))
		}
	}
	return nil
}

// change makes one change, and returns when it is in force.
func (s operator) change(ctx context.Context, c change) error {
	s.turn.Lock() // kills while nothing is queued want to be alone
	defer s.turn.Unlock()
	if err := s.putInForce(ctx, c); err != nil || ctx.Err() != nil {
		return err
	}
	s.count(changeConfig)
	if !c.terms.gone {
		return nil
	}
	if !stream.Sleep(ctx, c.absent) {
		return nil
	}
	c.terms.gone, c.way = false, byApply
	return s.putInForce(ctx, c)
}

// restore puts the first terms in force again, so that what is queued is called soon.
func (s operator) restore(ctx context.Context) error {
	if len(s.timeline) < 2 {
		return nil
	}
	return s.putInForce(ctx, change{setting: "all", terms: firstTerms(s.o), way: byApply})
}

func (s operator) putInForce(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changesWithin, fmt.Errorf("%s was not in force within %v", c.way, changesWithin))
	defer cancel()
	s.mu.Lock()
	number := strconv.Itoa(len(s.timeline))
	s.timeline = append(s.timeline, inForce{terms: c.terms, from: time.Now()})
	s.mu.Unlock()
	text := c.terms.yaml(s.url, number, s.o.isFleet())
	var err error
	switch c.way {
	case byRestart, byReload:
		err = s.changeFile(ctx, text, c.way)
	case andKill:
		err = s.applyAndKill(ctx, text, c)
	default:
		err = s.apply(ctx, text)
	}
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeline[len(s.timeline)-1].by = time.Now()
	s.ways[c.way]++
	return nil
}

// apply runs `weir config apply` until it succeeds: weir and the server may be away.
func (s operator) apply(ctx context.Context, text string) error {
	for {
		p, err := s.startApply(text)
		if err != nil {
			return err
		}
		if !p.Gone(ctx, appliesWithin) {
			p.Kill()
		}
		if p.State().Success() {
			return nil
		}
		if !stream.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("config apply: %s", lastLine(p.Tail()))
		}
	}
}

func (s operator) startApply(text string) (*process, error) {
	const file = "applied.yaml"
	if err := os.WriteFile(filepath.Join(s.o.Dir, file), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write %s: %w", file, err)
	}
	env := []string{"WEIR_NATS_URL=" + strings.Join(s.urls, ","), "WEIR_DATA_DIR=" + s.data()}
	return s.start(program{name: "config-apply", args: []string{"config", "apply", "-f", file, "--yes"}, env: env, mark: "stored as version"})
}

// applyAndKill kills weir while a configuration is applied, or just after.
func (s operator) applyAndKill(ctx context.Context, text string, c change) error {
	p, err := s.startApply(text)
	if err != nil {
		return err
	}
	if c.late {
		p.Gone(ctx, appliesWithin)
	}
	stream.Sleep(ctx, c.kill)
	s.fell()
	if !p.Gone(ctx, appliesWithin) {
		p.Kill()
	}
	return s.apply(ctx, text) // it may have failed; where it has not it finds nothing to change, and waits until weir follows
}

// changeFile has weir's own file say something else, and weir start with it or read it again.
func (s operator) changeFile(ctx context.Context, text string, w way) error {
	written := time.Now()
	if err := os.WriteFile(filepath.Join(s.o.Dir, configFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write weir.yaml: %w", err)
	}
	if w == byReload {
		s.mu.Lock()
		p := s.worker
		s.mu.Unlock()
		if p != nil {
			p.Signal(syscall.SIGHUP)
		}
		if err := s.awaitStored(ctx, text); err != nil {
			return err
		}
		return s.apply(ctx, text) // it finds nothing to change, and returns when weir follows
	}
	s.fell()
	for {
		s.mu.Lock()
		p := s.worker
		s.mu.Unlock()
		if p != nil && p.began.After(written) && p.isReady() {
			return nil
		}
		if !stream.Sleep(ctx, 5*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// awaitStored waits until weir has stored its file. A weir that is not there, or does not know the signal yet, does so when it starts:
// config apply must not be first, or the next start would take the file for a new one.
func (s operator) awaitStored(ctx context.Context, text string) error {
	nc, js, err := s.connected()
	if err != nil {
		return err
	}
	defer nc.Close()
	for {
		if isStored(ctx, js, text) {
			return nil
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// fell is a kill -9 that is none of the lives' own.
func (s *stage) fell() {
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	if p == nil {
		return // between two lives
	}
	p.felled.Store(true)
	s.kill(p, "")
}

// storedWithin is how long one look at the stored configuration may take: who is killed with a question under way never answers.
const storedWithin = 2 * time.Second

func isStored(ctx context.Context, js jetstream.JetStream, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, storedWithin)
	defer cancel()
	kv, err := js.KeyValue(ctx, "weir_config")
	if err != nil {
		return false
	}
	var stored struct {
		YAML string `json:"yaml"`
	}
	entry, err := kv.Get(ctx, "current")
	return err == nil && json.Unmarshal(entry.Value(), &stored) == nil && stored.YAML == text
}
