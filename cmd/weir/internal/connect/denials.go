package connect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// maxDenials bounds how many refusals are kept for the message: the first few tell which role is missing.
const maxDenials = 4

// Denials are what the server has refused to this user. NATS answers a forbidden publish with nothing at all: whoever
// waits for a reply waits in vain, unless somebody tells. It is safe for concurrent use.
type Denials struct {
	mu        sync.Mutex // of all below
	list      []string
	told      func(error)  // of each; may be nil
	tolerated []*tolerance // those that have not ended, the newest last
}

// tolerance is of what may be refused for a while.
type tolerance struct {
	subjects []string // none: all
	end      context.CancelCauseFunc
}

// covers reports whether a refusal is tolerated, by the server's words for it, which have the subject in quotes.
func (t *tolerance) covers(what string) bool {
	return len(t.subjects) == 0 || slices.ContainsFunc(t.subjects, func(subject string) bool { return strings.Contains(what, `"`+subject+`"`) })
}

// Note keeps a refusal, and passes over any other error.
func (d *Denials) Note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what := strings.TrimPrefix(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	if told := d.keep(what); told != nil {
		told(err)
	}
}

// keep returns who is to be told of a refusal.
func (d *Denials) keep(what string) (told func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range slices.Backward(d.tolerated) {
		if t.covers(what) {
			return t.end
		}
	}
	if len(d.list) < maxDenials {
		d.list = append(d.list, what)
	}
	return d.told
}

// Tell makes f hear of every refusal from now on that is not tolerated; nil ends that.
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

// Tolerate gives a context that ends when something is refused, for what may be refused: refusals of these subjects, or of all where none is
// named. Whoever asks for something else at the same time has to name them, or the refusal of that would be tolerated too. done ends it.
func (d *Denials) Tolerate(ctx context.Context, subjects ...string) (tolerant context.Context, done func()) {
	tolerant, cancel := context.WithCancelCause(ctx)
	t := &tolerance{subjects: subjects, end: cancel}
	d.mu.Lock()
	d.tolerated = append(d.tolerated, t)
	d.mu.Unlock()
	return tolerant, func() {
		cancel(nil)
		d.mu.Lock()
		d.tolerated = slices.DeleteFunc(d.tolerated, func(other *tolerance) bool { return other == t })
		d.mu.Unlock()
	}
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
