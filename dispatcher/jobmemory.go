package dispatcher

import (
	"context"
	"errors"

	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
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

// answered resizes a called job's space to what its message and answer take.
func (j *job) answered(r httpcall.Response) {
	if j.message != nil {
		j.space.Resize(jobSize(j.message) + int64(len(r.Body)))
	}
}

// Unload releases a job's message and its space. The schedule calls it, under the worker's lock.
func (j *job) Unload() {
	if j.message != nil {
		j.id, j.message = j.message.ID, nil
	}
	j.space.Release()
	j.space = nil
}

// entrySize returns the bytes that a loaded message takes.
func entrySize(e queue.Entry) int64 { return headersSize(e.Header) + int64(len(e.Data)) }

func jobSize(j *ingest.Job) int64 { return headersSize(j.Header) + int64(len(j.Body)) }

func headersSize(h map[string][]string) int64 {
	const rest = 2 << 10 // the map, the job, its request
	size := rest
	for name, values := range h {
		size += len(name)
		for _, v := range values {
			size += len(v)
		}
	}
	return int64(size)
}
