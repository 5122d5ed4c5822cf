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
// name an unknown api, and a full stream makes the intake answer 503 to every other refusal. So weir stores these
// letters only while the stream is at most half full, whatever has filled it. Beyond that it answers their jobs with
// 503 and stores nothing.
//
// While such letters come, the Writer reads the size of the stream once a second. In between it adds their sizes
// itself.
type strangers struct {
	mu    sync.Mutex // guards all below
	used  uint64     // bytes in the stream, as far as known
	room  uint64     // store letters of unknown apis only while used is below this; 0: no bound
	came  bool       // a letter came since the last look
	full  bool       // a warning was logged
	begun time.Time  // when the last warning was logged
}

const (
	strangersBody = 256 << 10 // maximum bytes of a body in a letter of an unknown api
	lookEvery     = time.Second
	tellEvery     = time.Minute
)

// errStrangers is why a job for an unknown api gets a 503. It wraps ErrTold: watchStrangers logs it once a minute.
var errStrangers = fmt.Errorf("the stream of dead letters is half full, so weir keeps no letters of apis that are not configured: %w", ingest.ErrTold)

// admit reserves room for one letter of this size. It fails with errStrangers if there is none.
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

// note stores the stream's size and half of its bound.
func (s *strangers) note(info *jetstream.StreamInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.came, s.room = info.State.Bytes, false, 0
	if info.Config.MaxBytes > 0 {
		s.room = uint64(info.Config.MaxBytes) / 2
	}
}

// due reports whether to read the stream's size, and whether to log that the half is full.
func (s *strangers) due(now time.Time) (look, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came && s.room > 0 && s.used+strangersBody > s.room && (!s.full || now.Sub(s.begun) > tellEvery) {
		s.full, s.begun, tell = true, now, true
	}
	return s.came, tell
}

// watchStrangers reads the stream's size once a second while letters of unknown apis come, until ctx ends.
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
				o.log.Warn("the stream of dead letters is half full: weir answers jobs for apis that are not configured with 503 until it is emptier: "+
					"purge their letters (weir dead purge --api _) or others, or raise dead_letters.max_bytes", "err", errStrangers)
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

// lookAtStrangers reads the stream's size. It fails after the time within.
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
