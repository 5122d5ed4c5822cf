package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// maxDenials bounds how many refusals are kept for the message: the first few tell which role is missing.
const maxDenials = 4

// Denials are what the server has refused to this user. NATS answers a forbidden publish with nothing at all: whoever
// waits for a reply waits in vain, unless somebody tells. It is safe for concurrent use.
type Denials struct {
	mu   sync.Mutex // of all below
	list []string
	told func(error) // of each; may be nil
	// spared are subjects that may be refused: that is told to who asks there alone.
	spared map[string]context.CancelCauseFunc
}

// Note keeps a refusal, and passes over any other error.
func (d *Denials) Note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what := strings.TrimPrefix(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	d.mu.Lock()
	told := d.told
	if spare := d.sparedLocked(what); spare != nil {
		told = spare
	} else if len(d.list) < maxDenials {
		d.list = append(d.list, what)
	}
	d.mu.Unlock()
	if told != nil {
		told(err)
	}
}

// Tell makes f hear of every refusal from now on; nil ends that.
func (d *Denials) Tell(f func(error)) {
	d.mu.Lock()
	d.told = f
	d.mu.Unlock()
}

// Any reports whether anything was refused.
func (d *Denials) Any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// Tolerate gives a context that ends when something is refused, for what may be refused. done ends that, and forgets it.
func (d *Denials) Tolerate(ctx context.Context) (tolerant context.Context, done func()) {
	tolerant, cancel := context.WithCancelCause(ctx)
	d.mu.Lock()
	before, kept := d.told, len(d.list)
	d.told = cancel
	d.mu.Unlock()
	return tolerant, func() {
		cancel(nil)
		d.mu.Lock()
		d.told, d.list = before, d.list[:kept]
		d.mu.Unlock()
	}
}

// TolerateAt is Tolerate for one subject, which one at a time may ask at: what is refused elsewhere meanwhile is noted and told as before.
func (d *Denials) TolerateAt(ctx context.Context, subject string) (tolerant context.Context, done func()) {
	tolerant, cancel := context.WithCancelCause(ctx)
	d.mu.Lock()
	if d.spared == nil {
		d.spared = map[string]context.CancelCauseFunc{}
	}
	d.spared[subject] = cancel
	d.mu.Unlock()
	return tolerant, func() {
		cancel(nil)
		d.mu.Lock()
		delete(d.spared, subject)
		d.mu.Unlock()
	}
}

// sparedLocked is who is told of a refusal at a subject that may be refused; nil: it is none. The caller holds the lock.
func (d *Denials) sparedLocked(what string) func(error) {
	for subject, spare := range d.spared {
		if strings.Contains(what, `"`+subject+`"`) {
			return spare
		}
	}
	return nil
}

// Explain puts what was refused before an error that it explains; without a refusal it is err.
func (d *Denials) Explain(err error) error {
	if err == nil || !d.Any() {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("the NATS server refuses this user rights that are needed (%s): give it a role of deploy/nats, or other credentials (a weir with its own server keeps operator.creds in its data directory, for the user that runs it): %w",
		strings.Join(d.list, "; "), err)
}
