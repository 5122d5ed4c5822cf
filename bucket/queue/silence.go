package queue

import (
	"context"
	"sync/atomic"
	"time"
)

// A reader may receive nothing although there are more messages. It asks for a limited number of bytes at once. If
// messages take exactly that many bytes, nats-server 2.15 ends the request without a notice. nats.go 1.55 counts only
// messages, and waits for the rest. It notices after two missed heartbeats, which takes 2 s. With jobs of 600 bytes
// that happens once in 300 MB of a queue. So the reader expects the messages that it knows to be in the stream: those
// that this process has stored itself, and those that the server reports with a message (its pending count). It does
// not know the jobs that other replicas store. After such an end, the first of these may wait for the heartbeats.

// Bounds of how long a reader waits for an expected message before it replaces its consumer. A busy machine may need
// longer, so the reader waits twice as long for each next consumer, until a message comes. The time also doubles if the
// stream's leader does not answer. After mostSilence nats.go notices by itself.
const (
	leastSilence = 250 * time.Millisecond
	mostSilence  = 2 * readHeartbeat
)

// expectation holds the sequence up to which a partition's stream has messages, as far as this process knows without
// asking. It is safe for concurrent use.
type expectation struct {
	upTo atomic.Uint64 // a sequence
	news chan struct{} // has a value when upTo was raised
}

func (e *expectation) raise(upTo uint64) {
	known := e.upTo.Load()
	for upTo > known && !e.upTo.CompareAndSwap(known, upTo) {
		known = e.upTo.Load()
	}
	if upTo <= known {
		return
	}
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// silence watches whether one consumer of a reading delivers the expected messages. It is used by one goroutine.
type silence struct {
	r      *reading
	timer  *time.Timer
	before uint64          // how far the stream was read when the timer was set
	news   <-chan struct{} // nil while the timer runs
}

// newSilence begins to watch a consumer. The expected messages are the same as for the consumer before.
func newSilence(r *reading) *silence {
	r.silence = max(r.silence, leastSilence)
	return &silence{r: r, timer: time.NewTimer(r.silence), before: r.p.contents.readTo()}
}

// begin sets the timer. It must be called after a value of news was received.
func (s *silence) begin() {
	s.news, s.before = nil, s.r.p.contents.readTo()
	s.timer.Reset(s.r.silence)
}

// lasts must be called when the timer fires. It reports whether the stream's leader has messages and the consumer has
// delivered none since the timer was set.
func (s *silence) lasts(ctx context.Context) bool {
	of := s.r.p.contents
	read := of.readTo()
	if read != s.before {
		s.r.silence = leastSilence
	}
	if read >= of.expected.upTo.Load() {
		s.news = of.expected.news
		return false
	}
	if read == s.before {
		soon, cancel := context.WithTimeout(ctx, mostSilence) // the watchdog does nothing else meanwhile
		defer cancel()
		switch next, err := s.r.p.source.nextAfter(soon, read); {
		case err == nil && next == 0: // it was deleted before it was read
			s.news = of.expected.news
			return false
		case err != nil: // asked again
			s.r.silence = min(2*s.r.silence, mostSilence)
		case of.readTo() == read:
			s.r.silence = min(2*s.r.silence, mostSilence)
			return true
		}
	}
	s.begin()
	return false
}
