package ingest

import "sync"

// unanswered counts the jobs that were accepted and have no answer yet. When the service stops, NATS still delivers
// messages that it had read ahead; enter rejects such jobs.
type unanswered struct {
	mu     sync.Mutex // guards what follows
	n      int
	closed bool
	empty  chan struct{} // closed with the last leave; nil until close is called
}

// enter counts one more job. It reports false, and counts nothing, after close.
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

// close makes enter report false from now on. The channel it returns is closed when every job has left.
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
