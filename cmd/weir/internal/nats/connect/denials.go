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

// maxDenials is how many refusals Denials keeps for a message. A few are enough to tell which role is missing.
const maxDenials = 4

// Denials records what the server has refused to this user. NATS does not answer a forbidden publish, so without
// Denials code would wait for a reply until its timeout. It is safe for concurrent use.
type Denials struct {
	mu        sync.Mutex // guards the fields below
	list      []string
	onDenial  func(error)  // called for each refusal; may be nil
	tolerated []*tolerance // tolerances that have not ended, the newest last
}

// tolerance is a set of subjects on which refusals are tolerated until it ends.
type tolerance struct {
	subjects []string // empty: all subjects
	end      context.CancelCauseFunc
}

// covers reports whether the tolerance covers a refusal. The server's text has the refused subject in quotes.
func (t *tolerance) covers(what string) bool {
	return len(t.subjects) == 0 || slices.ContainsFunc(t.subjects, func(subject string) bool { return strings.Contains(what, `"`+subject+`"`) })
}

// Note records a refusal, and ignores any other error.
func (d *Denials) Note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what := strings.TrimPrefix(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	if told := d.keep(what); told != nil {
		told(err)
	}
}

// keep records a refusal and returns the function to call with it: the end of the tolerance that covers the refusal, or
// onDenial.
func (d *Denials) keep(what string) (onDenial func(error)) {
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
	return d.onDenial
}

// Tell makes Denials call f with every later refusal that is not tolerated; nil stops the calls.
func (d *Denials) Tell(f func(error)) {
	d.mu.Lock()
	d.onDenial = f
	d.mu.Unlock()
}

// Any reports whether anything was refused.
func (d *Denials) Any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// Tolerate returns a context that ends when a tolerated refusal comes. It tolerates refusals of the given subjects, or
// of all subjects if none is given. If other requests run at the same time, the caller must name subjects; otherwise
// their refusals would be tolerated too. The caller must call done to end the tolerance.
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

// Explain wraps err in an error that names the recorded refusals. It returns err unchanged if there are none.
func (d *Denials) Explain(err error) error {
	if err == nil || !d.Any() {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("the NATS server refuses this user rights that are needed (%s): give it a role of deploy/nats, or other credentials (a weir with its own server keeps operator.creds in its data directory, for the user that runs it): %w",
		strings.Join(d.list, "; "), err)
}
