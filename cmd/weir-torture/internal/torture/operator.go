package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go/jetstream"
)

// configFile is the configuration file of weir.
const configFile = "weir.yaml"

// Bounds of one change.
const (
	appliesWithin = time.Minute // for one run of the command
	changesWithin = 3 * time.Minute
)

// operator changes weir's configuration while weir runs.
type operator struct {
	programs *programs
	record   *record
	servers  *servers
	weir     *weir
	url      string // at which weir calls the api
}

// configure writes the first configuration, for an api at url.
func (o *operator) configure(url string) error {
	o.url = url
	first := plan.FirstTerms(o.programs.o)
	o.record.starts(first)
	if err := os.WriteFile(filepath.Join(o.programs.o.Dir, configFile), []byte(first.YAML(url, "0", o.programs.o.IsFleet())), 0o600); err != nil {
		return fmt.Errorf("write weir.yaml: %w", err)
	}
	return nil
}

// reconfigure makes the planned changes one after another.
func (o *operator) reconfigure(ctx, faults context.Context, changes []plan.Change) error {
	for n, c := range changes {
		if !stream.Sleep(faults, c.Pause) {
			return nil
		}
		o.weir.awaitUp(ctx)
		if err := o.change(ctx, c); err != nil {
			return fmt.Errorf("change %d, %s: %w", n+1, c.Setting, err)
		}
		if done := n + 1; done%25 == 0 {
			o.record.talk("%d of %d changes", done, len(changes))
		}
	}
	return nil
}

// change makes one change and waits until it is in force. It puts a removed api back after c.absent.
func (o *operator) change(ctx context.Context, c plan.Change) error {
	o.weir.turn.Lock() // kills while nothing is queued must not overlap with changes
	defer o.weir.turn.Unlock()
	if err := o.putInForce(ctx, c); err != nil || ctx.Err() != nil {
		return err
	}
	o.record.count(plan.ChangeConfig)
	if !c.Terms.Gone {
		return nil
	}
	if !stream.Sleep(ctx, c.Absent) {
		return nil
	}
	c.Terms.Gone, c.Way = false, plan.ByApply
	return o.putInForce(ctx, c)
}

// restore puts the first terms in force again, so that queued jobs are called soon.
func (o *operator) restore(ctx context.Context) error {
	if o.record.configurations() < 2 {
		return nil
	}
	return o.putInForce(ctx, plan.Change{Setting: "all", Terms: plan.FirstTerms(o.programs.o), Way: plan.ByApply})
}

func (o *operator) putInForce(ctx context.Context, c plan.Change) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changesWithin, fmt.Errorf("%s was not in force within %v", c.Way, changesWithin))
	defer cancel()
	number := o.record.begins(c.Terms)
	text := c.Terms.YAML(o.url, strconv.Itoa(number), o.programs.o.IsFleet())
	var err error
	switch c.Way {
	case plan.ByRestart, plan.ByReload:
		err = o.changeFile(ctx, text, c.Way)
	case plan.AndKill:
		err = o.applyAndKill(ctx, text, c)
	default:
		err = o.apply(ctx, text)
	}
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	o.record.follows(c.Way)
	return nil
}

// apply runs `weir config apply` until it succeeds, because weir and the server may be down.
func (o *operator) apply(ctx context.Context, text string) error {
	for {
		p, err := o.startApply(text)
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

func (o *operator) startApply(text string) (*process, error) {
	const file = "applied.yaml"
	if err := os.WriteFile(filepath.Join(o.programs.o.Dir, file), []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write %s: %w", file, err)
	}
	return o.programs.start(program{name: "config-apply", args: []string{"config", "apply", "-f", file, "--yes"}, env: o.servers.commandEnv(), mark: "stored as version"})
}

// applyAndKill kills weir while a configuration is applied, or shortly after.
func (o *operator) applyAndKill(ctx context.Context, text string, c plan.Change) error {
	p, err := o.startApply(text)
	if err != nil {
		return err
	}
	if c.Late {
		p.Gone(ctx, appliesWithin)
	}
	stream.Sleep(ctx, c.Kill)
	o.weir.fell()
	if !p.Gone(ctx, appliesWithin) {
		p.Kill()
	}
	return o.apply(ctx, text) // if the command has succeeded, apply only waits until weir follows
}

// changeFile changes weir's own file, and restarts weir or makes it read the file again.
func (o *operator) changeFile(ctx context.Context, text string, w plan.Way) error {
	written := time.Now()
	if err := os.WriteFile(filepath.Join(o.programs.o.Dir, configFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write weir.yaml: %w", err)
	}
	if w == plan.ByReload {
		p := o.weir.now()
		if p != nil {
			p.Signal(syscall.SIGHUP)
		}
		if err := o.awaitStored(ctx, text); err != nil {
			return err
		}
		return o.apply(ctx, text) // apply finds nothing to change, and returns when weir follows
	}
	o.weir.fell()
	for {
		p := o.weir.now()
		if p != nil && p.began.After(written) && p.isReady() {
			return nil
		}
		if !stream.Sleep(ctx, 5*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// awaitStored waits until weir has stored its file. A weir that is down, or does not handle the signal yet, stores the
// file at its next start. config apply must not come first, or that start would take the file for newer than the
// applied configuration.
func (o *operator) awaitStored(ctx context.Context, text string) error {
	nc, js, err := o.servers.connected()
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

// storedWithin bounds one look at the stored configuration, because a server that is killed during a request never
// answers.
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
