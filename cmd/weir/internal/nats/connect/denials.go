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
	forgiven  []string     // subjects whose refusals are ignored for good
}

// tolerance is a set of subjects on which refusals are tolerated until it ends.
type tolerance struct {
	subjects []string // empty: all subjects
	end      context.CancelCauseFunc
}

// covers reports whether the tolerance covers a refusal.
func (t *tolerance) covers(what string) bool { return len(t.subjects) == 0 || names(what, t.subjects) }

// names reports whether a refusal is of one of the subjects. The server's text has the refused subject in quotes.
func names(what string, subjects []string) bool {
	return slices.ContainsFunc(subjects, func(subject string) bool { return strings.Contains(what, `"`+subject+`"`) })
}

// Note records a refusal, and ignores any other error. It returns true for a refusal that is forgiven: then there is
// nothing to report.
func (d *Denials) Note(err error) (forgiven bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	what := strings.TrimPrefix(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	told, forgiven := d.keep(what)
	if told != nil {
		told(err)
	}
	return forgiven
}

// keep records a refusal and returns the function to call with it: the end of the tolerance that covers the refusal, or
// onDenial.
func (d *Denials) keep(what string) (onDenial func(error), forgiven bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	forgiven = names(what, d.forgiven)
	for _, t := range slices.Backward(d.tolerated) {
		if t.covers(what) {
			return t.end, forgiven
		}
	}
	if forgiven {
		return nil, true
	}
	if len(d.list) < maxDenials {
		d.list = append(d.list, what)
	}
	return d.onDenial, false
}

// Forgive ignores refusals of a subject for good. A request for which the user may lack the right needs that besides
// Tolerate, because the refusal may come after the wait for an answer.
func (d *Denials) Forgive(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.forgiven, subject) {
		d.forgiven = append(d.forgiven, subject)
	}
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
