package dispatcher

import (
	"context"
	"errors"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// A job near its call has its message in memory, and later as much of the answer as is kept. The room for both is taken
// at once, before the message is loaded, so that no two jobs wait for each other. If there is no room, the job waits,
// so that only a few jobs with large bodies are called at a time. No job with room ever waits for a job without: jobs
// behind a retry are called before it, and jobs behind one that was never called give their room back
// (schedule/policy.go).

// errNoRoom says that a job was not loaded because its worker stopped before there was room.
var errNoRoom = errors.New("there was no room in memory before the stop")

// headerBytes is the room taken for the headers of a message before it is loaded.
const headerBytes = 4 << 10

// memory gives the jobs of a lane room in memory for their messages and answers.
type memory struct{ *lane }

// load loads a job's message into memory, with room for as much of its answer as is kept. It waits for that room until
// ctx ends or the worker stops.
func (w *memory) load(ctx context.Context, j *job) (queue.Entry, error) {
	p := j.part
	w.mu.Lock()
	api := w.terms.api
	if j.terms != nil {
		api = j.terms.api
	}
	k, isKept := p.cache.messages[j.Seq]
	w.mu.Unlock()
	size := api.Rule.MaxBody + headerBytes
	if isKept {
		size = k.size()
	}
	space, err := w.spaceOf(ctx, j, size+api.MaxResult)
	if err != nil {
		return queue.Entry{}, err
	}
	w.mu.Lock()
	entry, ok := p.cache.takeKept(j.Queue.Key, j.Seq)
	j.space, j.staged = space, w.now() // the time to make a job ready must not include its wait for room
	w.mu.Unlock()
	if ok {
		return entry, nil
	}
	loading, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if entry, err = p.bucket.Get(loading, j.Seq); err != nil {
		w.mu.Lock()
		j.Unload()
		w.mu.Unlock()
		return queue.Entry{}, err
	}
	space.Resize(entrySize(entry) + api.MaxResult)
	return entry, nil
}

// spaceOf waits for room in memory for a job.
func (w *memory) spaceOf(ctx context.Context, j *job, size int64) (*queue.Space, error) {
	holdings := w.queue.Holdings()
	if space := holdings.TryNear(size); space != nil {
		return space, nil
	}
	w.update(func(s *schedule.Schedule) { j.Cramped = true; s.Touch(j.Queue) })
	defer w.update(func(*schedule.Schedule) { j.Cramped = false })
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-w.stopping:
			cancel(errNoRoom)
		case <-ctx.Done():
		}
	}()
	return holdings.Near(ctx, size)
}

// givenUp ends a job if its message could not be loaded because it is gone, and reports whether it did.
func (w *settler) givenUp(ctx context.Context, j *job, err error) bool {
	if isNotFound(err) {
		j.missing++
	}
	if j.missing < mostMissing {
		return false
	}
	absence := w.absence(ctx, j)
	if absence == queue.Present {
		return false
	}
	w.update(func(s *schedule.Schedule) {
		if j.IsStaged() {
			s.Unstage(j.Job)
		}
	})
	w.buryMissing(ctx, j, absence)
	return true
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }

// absence asks the stream's leader whether a job's message is gone. If the leader does not answer, absence reports the
// message as present, so that the job is kept.
func (w *settler) absence(ctx context.Context, j *job) queue.Absence {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	a, err := j.part.bucket.Absence(ctx, j.Seq)
	if err != nil {
		return queue.Present
	}
	return a
}

// mostMissing is how often a load may miss a job's message before the worker asks the leader whether the message is
// gone. The replica that answers loads may lag.
const mostMissing = 5

// reload loads a settling job's message if it is not loaded yet. It blocks until the message is loaded, and reports
// false if the worker stops, the partition is lost, or the message is gone.
func (w *settler) reload(ctx context.Context, j *job) bool {
	w.mu.Lock()
	isLoaded := j.message != nil
	w.mu.Unlock()
	if j.part.lost.Load() {
		w.abandon(j) // the new owner ends the job and deletes its message
		return false
	}
	if isLoaded {
		return true // it has its room already, and a job with room must not wait for more
	}
	entry, err := w.memory.load(ctx, j)
	for ; err != nil; entry, err = w.memory.load(ctx, j) {
		if errors.Is(err, errNoRoom) || w.givenUp(ctx, j, err) {
			return false // if there was no room, a restart finds the job again
		}
		w.log.Error("could not load a job's message; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return false
		}
		if j.part.lost.Load() {
			w.abandon(j)
			return false
		}
	}
	w.mu.Lock()
	if j.terms == nil {
		j.bind(w.terms)
	}
	rule := j.terms.api.Rule
	w.mu.Unlock()
	job, _ := ingest.Restore(ingest.Message{Key: j.Queue.Key, Header: entry.Header, Body: entry.Data}, rule, entry.Time)
	w.mu.Lock()
	defer w.mu.Unlock()
	j.message, j.accepted = job, bucket.MicrosOf(entry.Time)
	j.doubtRestoredLocked()
	return true
}
