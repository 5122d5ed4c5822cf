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

// strangers bounds what jobs for apis that nobody has configured may take of the letters' stream: anybody who may publish jobs can
// name one, and a full stream has every other refusal answered with 503. They are given room in the first half, and none beyond,
// whoever has used it. What they are refused then is told as 503, and nothing of it is kept.
//
// The stream's bytes are asked for once a second while such letters come. Between two looks its own letters are added.
type strangers struct {
	mu    sync.Mutex // of all below
	used  uint64     // bytes of the stream, as far as known
	room  uint64     // of which strangers may use this many; 0: any number
	came  bool       // a letter, since the last look
	full  bool       // told already
	begun time.Time  // when that was
}

const (
	strangersBody = 256 << 10 // bytes of a job for an unknown api that its letter keeps
	lookEvery     = time.Second
	tellEvery     = time.Minute
)

// errStrangers is why a job for an unknown api is answered 503. It is told once a minute, and not for each.
var errStrangers = fmt.Errorf("jobs for apis that are not configured have used their half of the room for letters: %w", ingest.ErrTold)

// admit asks for the room of one letter.
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

// note keeps what the stream says of itself.
func (s *strangers) note(info *jetstream.StreamInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.came, s.room = info.State.Bytes, false, 0
	if info.Config.MaxBytes > 0 {
		s.room = uint64(info.Config.MaxBytes) / 2
	}
}

// due reports whether the stream is to be asked, and whether its being full is to be told.
func (s *strangers) due(now time.Time) (look, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came && s.room > 0 && s.used+strangersBody > s.room && (!s.full || now.Sub(s.begun) > tellEvery) {
		s.full, s.begun, tell = true, now, true
	}
	return s.came, tell
}

// watchStrangers looks at the stream while letters of unknown apis come, until ctx ends.
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
				o.log.Warn("jobs for apis that are not configured have used half of the room for dead letters, and are answered 503 from here on: "+
					"purge them (weir dead purge --api _), or raise dead_letters.max_bytes", "err", errStrangers)
			}
			if !look {
				continue
			}
			if err := o.lookAtStrangers(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				o.log.Debug("how full the dead letters are is not known", "err", err)
			}
		}
	}
}

func (o *Writer) lookAtStrangers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	stream, err := o.js.Stream(ctx, Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", Stream, err)
	}
	o.strangers.note(stream.CachedInfo())
	return nil
}
