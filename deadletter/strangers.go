package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// strangers bounds the room that letters of unknown apis take in the stream. Every client that may publish jobs can
// name an unknown api, and a full stream makes the intake answer 503 to every other refusal. So these letters are
// stored only while the stream is at most half full, whatever has filled it. Beyond that, weir answers their jobs with
// 503 and stores nothing of them.
//
// The Writer asks for the size of the stream once a second while such letters come, and adds their own sizes in
// between.
type strangers struct {
	mu    sync.Mutex // guards all below
	used  uint64     // bytes of the stream, as far as known
	room  uint64     // letters of unknown apis are stored while used is below it; 0: no bound
	came  bool       // a letter since the last look
	full  bool       // logged already
	begun time.Time  // when that was
}

const (
	strangersBody = 256 << 10 // maximum bytes of a body in the letter of a job for an unknown api
	lookEvery     = time.Second
	tellEvery     = time.Minute
)

// errStrangers is why a job for an unknown api is answered with 503. It is logged once a minute, not for each job.
var errStrangers = fmt.Errorf("jobs for apis that are not configured have used their half of the room for letters: %w", ingest.ErrTold)

// admit reserves room for one letter, or fails with errStrangers.
func (s *strangers) admit(bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = true
	if s.room > 0 && s.used+uint64(bytes) > s.room {
		return errStrangers
	}
	s.used += uint64(bytes)
	return nil
}

// note stores the stream's size and bound.
func (s *strangers) note(info *jetstream.StreamInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.came, s.room = info.State.Bytes, false, 0
	if info.Config.MaxBytes > 0 {
		s.room = uint64(info.Config.MaxBytes) / 2
	}
}

// due reports whether to ask for the size of the stream, and whether to log that it is full.
func (s *strangers) due(now time.Time) (look, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came && s.room > 0 && s.used+strangersBody > s.room && (!s.full || now.Sub(s.begun) > tellEvery) {
		s.full, s.begun, tell = true, now, true
	}
	return s.came, tell
}

// watchStrangers keeps the size of the stream current while letters of unknown apis come, until ctx ends.
func (o *Writer) watchStrangers(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			look, tell := o.strangers.due(now)
			if tell {
				o.log.Warn("jobs for apis that are not configured have used half of the room for dead letters, and weir answers them with 503 from now on: "+
					"purge them (weir dead purge --api _), or raise dead_letters.max_bytes", "err", errStrangers)
			}
			if !look {
				continue
			}
			if err := o.lookAtStrangers(ctx, lookEvery); err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				o.log.Debug("cannot read how full the dead-letter stream is", "err", err)
			}
		}
	}
}

// lookAtStrangers reads how full the stream is, within a time.
func (o *Writer) lookAtStrangers(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	stream, err := o.js.Stream(ctx, Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", Stream, err)
	}
	o.strangers.note(stream.CachedInfo())
	return nil
}
