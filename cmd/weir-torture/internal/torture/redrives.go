package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a redrive under faults.
const (
	redriveName = "tortured"
	redriveRate = 4                // letters per second
	redriveStep = 4                // letters that the redrive publishes between two faults
	redriveWait = 45 * time.Second // for these letters, and for a command
	redriveRest = time.Second      // how long a stopped redrive is observed
)

// redriver redrives the overflowed jobs at the end of a run.
type redriver struct {
	programs *programs
	record   *record
	servers  *servers
	weir     *weir
	api      *paidAPI
}

// redrive makes weir redrive the overflowed jobs. Two faults take turns: one kills weir, and the other stops the
// redrive, kills weir and resumes the redrive. It returns nil if no redrive was requested.
func (d *redriver) redrive(ctx context.Context, before *judge.Evidence) (*judge.Redrives, error) {
	if d.programs.o.Redrives == 0 {
		return nil, nil //nolint:nilnil // nothing is redriven
	}
	nc, js, err := d.servers.connected()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	of, r := before.Overflowed(), &judge.Redrives{}
	if r.Letters = len(of); r.Letters == 0 {
		d.record.note("nothing has overflowed: nothing is redriven")
		return r, nil
	}
	d.record.talk("%d jobs that overflowed are redriven", r.Letters)
	if err := d.command(ctx, "dead", "redrive", "--api", plan.APIName, "--reason", "overflow", "--rate", strconv.Itoa(redriveRate)+"/s", "--name", redriveName, "--yes", "--detach"); err != nil {
		return nil, err
	}
	for n := range d.programs.o.Redrives {
		if done, err := d.redriven(ctx, redriveStep); err != nil {
			return nil, err
		} else if done {
			d.record.note("the redrive was done after %d of %d faults", n, d.programs.o.Redrives)
			break
		}
		if n%2 == 0 {
			d.weir.fell()
			r.Kills++
			continue
		}
		if err := d.rest(ctx, js, r); err != nil {
			return nil, err
		}
	}
	for {
		if done, err := d.redriven(ctx, redriveStep); err != nil {
			return nil, err
		} else if done {
			break
		}
	}
	if _, err := d.servers.drain(ctx); err != nil {
		return nil, err
	}
	return r, d.judge(ctx, js, before, of, r)
}

// rest stops the redrive, kills weir, checks that no letter disappears, and resumes the redrive.
func (d *redriver) rest(ctx context.Context, js jetstream.JetStream, r *judge.Redrives) error {
	if err := d.command(ctx, "dead", "stop", redriveName); err != nil {
		return err
	}
	d.weir.fell()
	r.Kills, r.Stops = r.Kills+1, r.Stops+1
	left, err := d.overflows(ctx, js)
	if err != nil {
		return err
	}
	stream.Sleep(ctx, redriveRest)
	later, err := d.overflows(ctx, js)
	if err != nil {
		return err
	}
	for id := range left {
		if _, there := later[id]; !there {
			r.Gone++
		}
	}
	return d.command(ctx, "dead", "resume", redriveName)
}

// overflows returns the letters "overflow" that exist now, by job and number.
func (d *redriver) overflows(ctx context.Context, js jetstream.JetStream) (map[string]struct{}, error) {
	for limit := time.Now().Add(redriveWait); ; {
		ends, err := readEnds(ctx, js)
		if err == nil {
			of := map[string]struct{}{}
			for _, l := range ends.Letters {
				if l.Reason == "overflow" {
					of[l.Job+" "+strconv.FormatUint(l.Seq, 10)] = struct{}{}
				}
			}
			return of, nil
		}
		if time.Now().After(limit) || !stream.Sleep(ctx, 100*time.Millisecond) { // the embedded server is starting
			return nil, fmt.Errorf("look at the letters: %w", err)
		}
	}
}

// redriven waits until at least more further letters are done, or until the redrive is done. It fails if the redrive
// has failed, or does not get so far within redriveWait.
func (d *redriver) redriven(ctx context.Context, more int) (done bool, err error) {
	first := -1
	for limit := time.Now().Add(redriveWait); time.Now().Before(limit); {
		task, err := d.task(ctx)
		switch {
		case err != nil: // the embedded server is starting
		case task.State == "done" || task.State == "failed":
			if task.State == "failed" {
				err = fmt.Errorf("the redrive has failed: %s", task.Why)
			}
			return true, err
		case first < 0:
			first = task.Done
		case task.Done >= first+more:
			return false, nil
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return false, context.Cause(ctx)
		}
	}
	return false, fmt.Errorf("the redrive does not go on for %v", redriveWait)
}

// redriveState is the state of a redrive, as weir reports it.
type redriveState struct {
	State string `json:"state"`
	Done  int    `json:"done"`
	Why   string `json:"why"`
}

func (d *redriver) task(ctx context.Context) (*redriveState, error) {
	p, err := d.programs.start(program{name: "redrive-task", args: []string{"dead", "task", redriveName, "--json"}, env: d.servers.commandEnv(), mark: `"name":"` + redriveName})
	if err != nil {
		return nil, err
	}
	if !p.Gone(ctx, appliesWithin) {
		p.Kill()
	}
	if p.marked == "" {
		return nil, fmt.Errorf("dead task: %s", lastLine(p.Tail()))
	}
	state := &redriveState{}
	return state, json.Unmarshal([]byte(p.marked), state)
}

// command runs a command of weir until it succeeds, because weir and the embedded server may be down.
func (d *redriver) command(ctx context.Context, args ...string) error {
	for limit := time.Now().Add(redriveWait); ; {
		p, err := d.programs.start(program{name: "command", args: args, env: d.servers.commandEnv()})
		if err != nil {
			return err
		}
		if !p.Gone(ctx, appliesWithin) {
			p.Kill()
		}
		switch said := lastLine(p.Tail()); {
		case p.State().Success():
			return nil
		case strings.Contains(said, "there is a redrive") || strings.Contains(said, "is done") || strings.Contains(said, "has ended"):
			return nil // an earlier try did it, and its answer was lost; or the redrive has ended
		case time.Now().After(limit) || !stream.Sleep(ctx, 200*time.Millisecond):
			return fmt.Errorf("weir %s: %s", strings.Join(args, " "), said)
		}
	}
}

// judge reads what became of the jobs, and judges it.
func (d *redriver) judge(ctx context.Context, js jetstream.JetStream, before *judge.Evidence, of map[string]struct{}, r *judge.Redrives) error {
	ends, err := readEnds(ctx, js)
	if err != nil {
		return err
	}
	seen, err := fakeapi.ReadLedger(d.api.ledger)
	if err != nil {
		return err
	}
	calls := map[string]int{}
	submitted, _ := judge.Apart(seen.Arrivals)
	for _, a := range judge.ByJob(submitted) {
		if !before.PushedBack(&a) {
			calls[judge.JobOf(&a)]++
		}
	}
	r.Judge(of, ends, calls, d.programs.o.Idempotent)
	return nil
}
