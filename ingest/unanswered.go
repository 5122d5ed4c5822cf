package ingest

import "sync"

// unanswered counts the jobs that were taken and not answered yet. NATS goes on delivering what it had read ahead when the
// service stops; such a job is not let in any more.
type unanswered struct {
	mu     sync.Mutex // guards what follows
	n      int
	closed bool
	empty  chan struct{} // closed when the last has left; nil until close is called
}

// enter counts one more, and reports false when that is over.
func (o *unanswered) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.n++
	}
	return !o.closed
}

func (o *unanswered) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 && o.closed {
		close(o.empty)
	}
}

// close lets nobody in any more; the channel it returns is closed when the last has left.
func (o *unanswered) close() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed, o.empty = true, make(chan struct{})
		if o.n == 0 {
			close(o.empty)
		}
	}
	return o.empty
}
