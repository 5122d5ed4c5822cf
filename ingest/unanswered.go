package ingest

import "sync"

// unanswered counts the jobs that the service has taken and not answered yet. When the service stops, nats.go still
// delivers messages that it has read ahead: enter rejects them.
type unanswered struct {
	mu     sync.Mutex // guards what follows
	n      int
	closed bool
	empty  chan struct{} // closed when the last job leaves; nil until close is called
}

// enter counts one more job. After close it counts nothing and returns false.
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

// close makes enter return false from now on. The returned channel is closed when every job has left.
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
