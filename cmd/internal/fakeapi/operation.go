package fakeapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Operations is an api that accepts calls and goes on working. Its Script answers a POST with 202 and a Location. A GET
// of that location is a poll: Polls polls find {"state":"running"}, and later ones the state that EndState returns,
// with {"output":…}. A DELETE cancels the operation. The last segment of the POST's path names the operation, unless
// Name is set. A second POST of the same name is counted and begins the operation again. With the zero value every
// operation is done at its first poll. It is safe for concurrent use.
type Operations struct {
	// Name returns the name of the operation that a POST begins. Nil means the last segment of the path.
	Name func(r *Request) string
	// Polls is how many polls of each operation find it running.
	Polls int
	// EndState returns the state of an ended operation. Nil means "done".
	EndState func(name string) string
	// Answer replaces the answer to a poll if it returns true. Optional.
	Answer func(name string, poll int) (Behaviour, bool)
	// Location returns the header Location of an operation. Nil means a path on this host.
	Location func(name string) string

	mu  sync.Mutex // guards the fields below
	all map[string]*operation
}

// operation is what the api knows of one operation.
type operation struct {
	submitted, polled, cancelled int
	held                         bool // it runs until Finish
}

// operationPath begins the paths of operations on this host.
const operationPath = "/operations/"

func (o *Operations) of(name string) *operation {
	op := o.all[name]
	if op == nil {
		if op = new(operation); o.all == nil {
			o.all = map[string]*operation{}
		}
		o.all[name] = op
	}
	return op
}

// Script answers a request. It is a Script.
func (o *Operations) Script(_ context.Context, r *Request) Behaviour {
	name := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	if r.Method == http.MethodPost && o.Name != nil {
		name = o.Name(r)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		o.of(name).submitted++
		o.of(name).polled = 0
		at := operationPath + name
		if o.Location != nil {
			at = o.Location(name)
		}
		return Behaviour{Status: http.StatusAccepted, Location: at, Answer: AnswerText, Text: fmt.Sprintf(`{"id":%q}`, name)}
	case o.all[name] == nil:
		return Behaviour{Status: http.StatusNotFound, Bill: BillNever}
	case r.Method == http.MethodDelete:
		o.all[name].cancelled++
		return Behaviour{Answer: AnswerText, Text: `{"state":"cancelled"}`, Bill: BillNever}
	}
	op := o.all[name]
	op.polled++
	if o.Answer != nil {
		if b, replaced := o.Answer(name, op.polled); replaced {
			b.Bill = BillNever
			return b
		}
	}
	state := "running"
	if op.polled > o.Polls && !op.held {
		if state = "done"; o.EndState != nil {
			state = o.EndState(name)
		}
	}
	text := fmt.Sprintf(`{"state":%q,"output":{"of":%q}}`, state, name)
	return Behaviour{Answer: AnswerText, Text: text, Bill: BillNever}
}

// Behind returns a script that passes each POST to first. If first lets the POST succeed, the POST begins an operation,
// after the delay that first orders. Polls do not reach first.
func (o *Operations) Behind(first Script) Script {
	return func(ctx context.Context, r *Request) Behaviour {
		var b Behaviour
		if r.Method == http.MethodPost && first != nil {
			if b = first(ctx, r); b.Status != 0 || b.Fault != NoFault {
				return b
			}
		}
		begun := o.Script(ctx, r)
		begun.Delay = b.Delay
		return begun
	}
}

// Hold keeps an operation running until Finish.
func (o *Operations) Hold(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of(name).held = true
}

// Finish lets an operation end that Hold has kept running.
func (o *Operations) Finish(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of(name).held = false
}

// Submitted returns how often an operation was submitted.
func (o *Operations) Submitted(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of(name).submitted
}

// Polled returns how often an operation was polled since it was last submitted.
func (o *Operations) Polled(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of(name).polled
}

// Cancelled returns how often an operation was cancelled.
func (o *Operations) Cancelled(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of(name).cancelled
}
