package settle

import (
	"context"
	"errors"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// A job near its call has its message in memory, and later as much of the answer as is kept. The room for both is taken
// at once, before the message is loaded, so that no two jobs wait for each other. If there is no room, the job waits.
// So only a few jobs with large bodies are called at the same time. A job with room never waits for a job without room:
// jobs behind a retry are called before it, and jobs behind one that was never called give their room back (unready in
// dispatcher/schedule/stage.go).

// ErrNoRoom says that a job was not loaded because its worker stopped before there was room in memory.
var ErrNoRoom = errors.New("there was no room in memory before the stop")

// headerBytes is the room taken for the headers of a message before it is loaded.
const headerBytes = 4 << 10

// Memory gives the jobs of a lane room in memory for their messages and answers.
type Memory struct{ *lane.Lane }

// Load loads a job's message into memory, with room for as much of its answer as is kept. It waits for that room until
// ctx ends or the worker stops.
func (w *Memory) Load(ctx context.Context, j *lane.Job) (queue.Entry, error) {
	return w.load(ctx, j, w.spaceOf)
}

// TryLoad is Load for a member of a pack. The pack's other jobs have room already, so TryLoad must not wait for more:
// it fails with ErrNoRoom instead.
func (w *Memory) TryLoad(ctx context.Context, j *lane.Job) (queue.Entry, error) {
	return w.load(ctx, j, func(_ context.Context, _ *lane.Job, size int64) (*queue.Space, error) {
		if space := w.Queue.Holdings().TryNear(size); space != nil {
			return space, nil
		}
		return nil, ErrNoRoom
	})
}

func (w *Memory) load(ctx context.Context, j *lane.Job, room func(context.Context, *lane.Job, int64) (*queue.Space, error)) (queue.Entry, error) {
	p := j.Part
	w.Mu.Lock()
	api := w.Terms.API
	if j.Terms != nil {
		api = j.Terms.API
	}
	k, isKept := p.Cache.Messages[j.Seq]
	w.Mu.Unlock()
	size := api.Rule.MaxBody + headerBytes
	if isKept {
		size = k.Size()
	}
	space, err := room(ctx, j, size+api.Room())
	if err != nil {
		return queue.Entry{}, err
	}
	w.Mu.Lock()
	take := p.Cache.TakeKept
	if j.LooksAhead() {
		take = p.Cache.Peek // it is loaded again for its slot
	}
	entry, ok := take(j.Queue.Key, j.Seq)
	j.Space, j.Staged = space, w.Now() // the time to make a job ready must not include its wait for room
	w.Mu.Unlock()
	if ok {
		return entry, nil
	}
	loading, cancel := context.WithTimeout(ctx, lane.LoadTimeout)
	defer cancel()
	if entry, err = p.Bucket.Get(loading, j.Seq); err != nil {
		w.Mu.Lock()
		j.Unload()
		w.Mu.Unlock()
		return queue.Entry{}, err
	}
	space.Resize(lane.EntrySize(entry) + api.Room())
	return entry, nil
}

// spaceOf waits for room in memory for a job.
func (w *Memory) spaceOf(ctx context.Context, j *lane.Job, size int64) (*queue.Space, error) {
	holdings := w.Queue.Holdings()
	if space := holdings.TryNear(size); space != nil {
		return space, nil
	}
	w.Update(func(s *schedule.Schedule) { j.Cramped = true; s.Queues.Touch(j.Queue) })
	defer w.Update(func(*schedule.Schedule) { j.Cramped = false })
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-w.Stopping:
			cancel(ErrNoRoom)
		case <-ctx.Done():
		}
	}()
	return holdings.Near(ctx, size)
}

// GivenUp ends a job if its message could not be loaded because the message is gone. It returns true if it ended the
// job.
func (w *Settler) GivenUp(ctx context.Context, j *lane.Job, err error) bool {
	if isNotFound(err) {
		j.Missing++
	}
	if j.Missing < mostMissing {
		return false
	}
	absence := w.absence(ctx, j)
	if absence == queue.Present {
		return false
	}
	w.Update(func(s *schedule.Schedule) {
		if j.IsStaged() || j.LooksAhead() {
			s.Unstage(j.Job)
		}
	})
	w.BuryMissing(ctx, j, absence)
	return true
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }

// absence asks the stream's leader whether a job's message is gone. If the leader does not answer, absence returns
// queue.Present, so that the job is kept.
func (w *Settler) absence(ctx context.Context, j *lane.Job) queue.Absence {
	ctx, cancel := context.WithTimeout(ctx, lane.LoadTimeout)
	defer cancel()
	a, err := j.Part.Bucket.Absence(ctx, j.Seq)
	if err != nil {
		return queue.Present
	}
	return a
}

// mostMissing is how often a load may miss a job's message before the worker asks the leader whether the message is
// gone. The replica that answers loads may lag behind the leader.
const mostMissing = 5

// Reload loads a settling job's message if it is not loaded yet. It blocks until the message is loaded. It returns
// false if the worker stops, the partition is lost, or the message is gone.
func (w *Settler) Reload(ctx context.Context, j *lane.Job) bool {
	w.Mu.Lock()
	isLoaded := j.Message != nil
	w.Mu.Unlock()
	if j.Part.Lost.Load() {
		w.abandon(j) // the new owner ends the job and deletes its message
		return false
	}
	if isLoaded {
		return true // it has its room already, and a job with room must not wait for more
	}
	entry, err := w.Memory.Load(ctx, j)
	for ; err != nil; entry, err = w.Memory.Load(ctx, j) {
		if errors.Is(err, ErrNoRoom) || w.GivenUp(ctx, j, err) {
			return false // if there was no room, a restart finds the job again
		}
		w.Log.Error("could not load a job's message; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, lane.LoadRetry) {
			return false
		}
		if j.Part.Lost.Load() {
			w.abandon(j)
			return false
		}
	}
	w.restore(j, entry)
	return true
}

// restore gives a job its loaded message. If reading the message panics, restore ignores that: the message is read
// again before a call, and the job is then parked.
func (w *Settler) restore(j *lane.Job, e queue.Entry) {
	w.Mu.Lock()
	if j.Terms == nil {
		j.Bind(w.Terms)
	}
	rule := j.Terms.API.Rule
	w.Mu.Unlock()
	job, _, _ := w.Restore(j, e, rule)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	j.Message, j.Accepted = job, bucket.MicrosOf(e.Time)
	j.RecallLocked()
}
