package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/ingest"
)

// freshLook is how old the last look may be when a letter is published. If no queue has taken the letter's job, the
// queue detects a submission that the look missed, because the redrive keeps the message id of such a job.
const freshLook = 250 * time.Millisecond

// look finds out what became of the jobs of one api. The first look reads everything, each later one only the messages
// since. It goes by the sequences of the streams, so it depends neither on clocks nor on the number of keys. All
// letters of an api share one look.
type look struct {
	found   *histories
	browser *Browser
	calls   CallsReader
	api     string
	keys    []string      // nil: all
	since   time.Time     // when the first letter was stored
	from    time.Time     // no earlier call can matter
	dedupe  time.Duration // how long the queue knows an id

	mu      sync.Mutex // guards what follows; held during a look
	at      time.Time  // when the last look began
	queue   queue.Frontier
	letters uint64
	ledger  uint64
}

// fresh looks again unless the last look is younger than freshLook. It blocks during a look of another goroutine.
func (l *look) fresh(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < freshLook {
		return nil
	}
	return l.lookLocked(ctx)
}

// look reads the messages that came since the last look.
func (l *look) look(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lookLocked(ctx)
}

// lookLocked reads the queue, then the letters, then the ledger. A job leaves the queue only after its letter or its
// record is stored, so the look misses no job that moves meanwhile.
func (l *look) lookLocked(ctx context.Context) error {
	began := time.Now()
	type arrival struct {
		id identity
		life
	}
	var waiting []arrival
	mu := sync.Mutex{}
	place, err := queue.Arrivals(ctx, l.browser.js, queue.Asked{API: l.api, Keys: l.keys, After: l.queue}, func(key string, h nats.Header) {
		id := identify(l.api, key, h.Get(ingest.HeaderJobID))
		if l.found.knows(id) {
			mu.Lock()
			defer mu.Unlock()
			n := redrivesIn(h)
			waiting = append(waiting, arrival{id, life{n, RedrivenFrom(h, n)}})
		}
	})
	if err != nil {
		return err
	}
	letters, err := l.laterLetters(ctx)
	if err != nil {
		return err
	}
	q := CallsQuery{API: l.api, Keys: l.keys, After: l.ledger}
	if l.ledger == 0 {
		q.Since = l.from
	}
	ledger, err := l.calls(ctx, q, func(t Trace) { l.found.addCall(l.api, t) })
	if err != nil {
		return fmt.Errorf("look for later traces of the jobs of api %s: %w", l.api, err)
	}
	for _, a := range waiting {
		l.found.addProgress(a.id, a.life)
	}
	l.at, l.queue, l.letters, l.ledger = began, place, letters, ledger
	return nil
}

// laterLetters adds letters of the same jobs that the redrive did not select. It returns the sequence up to which it
// has read.
func (l *look) laterLetters(ctx context.Context) (upTo uint64, err error) {
	b := l.browser
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("dead letters: %w", err)
	}
	last, after := info.State.LastSeq, l.letters
	if last == after && last > 0 {
		return last, nil
	}
	from := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1}
	if after == 0 || last < after { // the first look, or the stream has lost what was read
		from.DeliverPolicy, from.OptStartSeq, from.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &l.since
	}
	f := Filter{API: l.api}
	from.FilterSubjects = []string{f.subject()}
	if l.keys != nil {
		from.FilterSubjects = nil
		for _, f.Key = range l.keys {
			from.FilterSubjects = append(from.FilterSubjects, f.subject())
		}
	}
	read := stream.Until{Conn: b.js.Conn(), Stream: b.stream, From: from, Last: last, Clear: true}
	err = stream.ReadUntil(ctx, read, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		if k, ok := ReadKept(msg); ok {
			l.found.addLater(identify(l.api, k.Key, k.JobID), &k, l.dedupe)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the dead letters: %w", err)
	}
	return last, nil
}

// lookAgain makes sure that the last look at the jobs of a letter's api is at most freshLook old.
func (x *run) lookAgain(ctx context.Context, k *Kept) error {
	l := x.looks[k.API]
	if l == nil {
		return errors.New("a letter of an api that was not looked up")
	}
	return l.fresh(ctx)
}
