package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// The streams.
const (
	Stream       = "WEIR_DEAD"
	EventsStream = "WEIR_EVENTS"

	eventsAge = 24 * time.Hour

	// lettersKnown is how long a worker may be down between storing a letter and deleting its job. After a longer time
	// it stores the letter twice.
	lettersKnown = time.Hour
)

// Bounds of the letters and events that wait to be stored. Beyond them burials fail.
const (
	maxWaiting      = 65536
	maxWaitingBytes = 256 << 20
	maxEventsBytes  = 1 << 30
)

// Options configure a Writer. All fields are required except MaxStore, FirstSeq, MaxWaiting, Dedupe, ReplyPrefix and
// Registerer.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Replicas  int
	MaxAge    time.Duration // of letters
	MaxBytes  int64         // of letters
	// MaxStore is the most bytes that one stream may reserve on the server. Zero means no bound.
	MaxStore int64
	// FirstSeq is the first sequence of each new stream, by the stream's name. Other streams begin at 1.
	FirstSeq map[string]uint64
	// MaxWaiting bounds the bytes of the letters that wait to be stored, of such events, and of the refusals that wait
	// for a letter, separately. Zero means maxWaitingBytes.
	MaxWaiting int64
	// Dedupe returns how long weir knows a job's id: refusals of the same job within that time share one letter. Nil
	// means ten minutes.
	Dedupe func() time.Duration
	// ReplyPrefix is a second prefix for replies: Reply also publishes below it, for producers in an account of their
	// own. Empty means none.
	ReplyPrefix string
	Log         *slog.Logger
	Registerer  prometheus.Registerer
}

// Writer buries letters and sends events. It is safe for concurrent use.
type Writer struct {
	nc          *nats.Conn
	js          jetstream.JetStream
	strangers   strangers
	replyPrefix string
	log         *slog.Logger
	letters     *stream.Writer
	events      *stream.Writer
	refusals    *refusals
	buried      *prometheus.CounterVec
}

// Open creates or updates the streams and returns a Writer. The Writer stores nothing until Run.
func Open(ctx context.Context, o Options) (*Writer, error) {
	if err := EnsureStreams(ctx, o); err != nil {
		return nil, err
	}
	bytes := maxWaitingBytes
	if o.MaxWaiting > 0 {
		bytes = int(min(o.MaxWaiting, maxWaitingBytes))
	}
	letters, err := stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxWaiting, bytes)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	events, err := stream.NewWriter(o.Conn, stream.DiskOf(o.JetStream), maxWaiting, bytes)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	writer := &Writer{
		nc: o.Conn, js: o.JetStream, replyPrefix: o.ReplyPrefix, log: o.Log.With("component", "deadletter"), letters: letters, events: events,
		refusals: newRefusals(o.Dedupe, bytes),
		buried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_dead_letters_total", Help: "Jobs that became dead letters.",
		}, []string{"api", "reason"}),
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(writer.buried, &kept{js: o.JetStream})
	}
	writer.buried.WithLabelValues(ingest.Token(""), string(Invalid)) // for apis that are not configured
	return writer, writer.lookAtStrangers(ctx, stream.AnswerWait)    // an election of a leader may be under way
}

// Announce creates the series of an api's letters at zero, so that the first letter shows as an increase.
func (o *Writer) Announce(api string) {
	for _, reason := range Reasons() {
		o.buried.WithLabelValues(ingest.Token(api), string(reason))
	}
}

// Remember makes the Writer know the newest letters of a restored stream, because such a stream has forgotten their
// message ids. Call it before Run.
func (o *Writer) Remember(ctx context.Context, js jetstream.JetStream) error {
	since := time.Now().Add(-lettersKnown)
	if err := o.letters.Remember(ctx, stream.Newest{JetStream: js, Stream: Stream, Since: since}, o.log); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	return nil
}

// Run stores letters and events until ctx ends.
func (o *Writer) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.letters.Run(ctx) })
	group.Go(func() error { return o.events.Run(ctx) })
	group.Go(func() error { return o.watchStrangers(ctx) })
	for range refusalCheckers {
		group.Go(func() error { return o.checkRefusals(ctx) })
	}
	group.Go(func() error { return o.healReplaced(ctx) })
	return group.Wait()
}

// Bury stores a letter, then its event, and then sends the notice to the job's reply subject. It blocks until letter
// and event are stored. If it fails, the caller must keep the job.
func (o *Writer) Bury(l *Letter) error {
	stored := make(chan error, 1)
	o.bury(l, func(seq uint64) Event { return o.deadEvent(l, seq, 0) }, func(_ uint64, err error) { stored <- err })
	return <-stored
}

func (o *Writer) deadEvent(l *Letter, seq uint64, refusals int) Event {
	return Event{Type: DeadEvent, API: l.API, Key: l.Key, Trace: ingest.TraceOf(l.Header).Parent, Data: DeadData{
		Job: l.JobID, Reason: l.Reason, Detail: cleanDetail(l.Detail), Attempts: l.Attempts, Status: l.Status,
		Billed: l.billed(), DeadLetterSeq: seq, Refusals: refusals,
	}}
}

// BuryRefused is Bury for a refused job. It does not block. It calls done once, with the letter's sequence or with an
// error. After an error the intake must ask the producer to try again.
func (o *Writer) BuryRefused(r ingest.Refused, done func(seq uint64, err error)) {
	if fault.Planted(fault.AnswerFirst) {
		done(1, nil)
		time.AfterFunc(100*time.Millisecond, func() { o.buryRefused(r, func(uint64, error) {}) })
		return
	}
	o.buryRefused(r, done)
}

func (o *Writer) buryRefused(r ingest.Refused, done func(seq uint64, err error)) {
	fault.Pass(fault.RefusalNext)
	l := &Letter{
		API: r.API, Key: r.Key, JobID: r.JobID, Reason: Invalid, Detail: r.Refusal.Description, Header: r.Header,
		Body: r.Body, At: time.Now(), Billed: NotBilled, ReplyTo: r.ReplyTo, Redrives: r.Redrives,
	}
	l.Accepted, l.BodyLeftOut = l.At, r.BodyLeftOut
	if !validAPI(r.API) || r.Refusal.Code == ingest.UnknownAPI {
		l.API = ""
		if len(r.API) <= maxAskedBytes {
			l.AskedAPI = r.API
		}
		if len(l.Body) > strangersBody {
			l.Body, l.BodyLeftOut = nil, true
		}
		if err := o.strangers.admit(l.Message().Size()); err != nil {
			done(0, err)
			return
		}
	}
	event := func(seq uint64, refusals int) Event { return o.deadEvent(l, seq, refusals) }
	if r.Refusal.Code == ingest.Throttled {
		l.Reason = Overflow
		event = func(seq uint64, refusals int) Event {
			return Event{Type: ThrottledEvent, API: l.API, Key: l.Key, Trace: ingest.TraceOf(l.Header).Parent, Data: ThrottledData{
				Job: l.JobID, Reason: l.Reason, Detail: cleanDetail(l.Detail), Depth: r.Refusal.Depth, Capacity: r.Refusal.Capacity,
				RetryAfterMS: r.Refusal.RetryAfterMS(), DeadLetterSeq: seq, Refusals: refusals,
			}}
		}
	}
	if id, ok := identifyRefusal(&r); ok {
		bytes := (&nats.Msg{Header: r.Header, Data: r.Body}).Size()
		if o.refuseOnce(l, id, refusalWaiting{l, event, done, bytes}) {
			return
		}
	}
	o.bury(l, func(seq uint64) Event { return event(seq, 0) }, o.orTakenBack(done))
}

// orTakenBack returns a done that deletes the letter of one refusal if the letter's event could not be stored. The
// producer then gets a 503 and tries again.
func (o *Writer) orTakenBack(done func(seq uint64, err error)) func(seq uint64, err error) {
	return func(seq uint64, err error) {
		if err != nil && seq > 0 {
			request := fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq)
			if err := o.nc.Publish("$JS.API.STREAM.MSG.DELETE."+Stream, request); err != nil {
				o.log.Warn("could not delete a letter whose event was not stored", "seq", seq, "err", err)
			}
		}
		done(seq, err)
	}
}

func (o *Writer) bury(l *Letter, event func(seq uint64) Event, done func(seq uint64, err error)) {
	o.letters.Begin(l.Message(), func(a stream.Answer) {
		seq, err := a.Seq, a.Err
		if errors.Is(err, stream.ErrTooLarge) && l.Answer != nil && len(l.Answer.Body) > 0 {
			less := *l
			less.Answer = l.Answer.Clip(0) // the job itself matters more than the answer
			o.bury(&less, event, done)
			return
		}
		if err != nil {
			done(0, fmt.Errorf("dead letter: %w", err))
			return
		}
		fault.Pass(fault.LetterStored)
		o.Send(event(seq), func(err error) {
			if err != nil {
				done(seq, err)
				return
			}
			fault.Pass(fault.EventStored)
			o.buried.WithLabelValues(ingest.Token(l.API), string(l.Reason)).Inc()
			o.notify(l)
			done(seq, nil)
		})
	})
}

// Reply publishes a job's end to the subject of msg, which the job named. It does not wait for a subscriber.
func (o *Writer) Reply(msg *nats.Msg) error {
	err := o.nc.PublishMsg(msg)
	if o.replyPrefix == "" || err != nil {
		return err
	}
	return o.nc.PublishMsg(&nats.Msg{Subject: o.replyPrefix + msg.Subject, Header: msg.Header, Data: msg.Data})
}

// notify publishes the notice of a letter to the subject that the job named.
func (o *Writer) notify(l *Letter) {
	if l.ReplyTo == "" {
		return
	}
	if err := o.Reply(l.Notice()); err != nil {
		o.logOf(l).Warn("a notice could not be sent", "err", err)
	}
}

// logOf returns the logger for lines about a letter.
func (o *Writer) logOf(l *Letter) *slog.Logger {
	return ingest.TraceOf(l.Header).Log(o.log.With("api", l.API, "job_id", l.JobID))
}

// Send stores an event and calls done once.
func (o *Writer) Send(e Event, done func(err error)) {
	o.events.Begin(e.message(time.Now()), func(a stream.Answer) {
		if a.Err != nil {
			a.Err = fmt.Errorf("event %s: %w", e.Type, a.Err)
		}
		done(a.Err)
	})
}

// maxAskedBytes bounds the name of an unknown api in a letter, in bytes. No api has a longer name.
const maxAskedBytes = 128

func validAPI(name string) bool { return ingest.CheckAPI(name) == nil }

// EnsureStreams creates the streams, or updates them to the ages and sizes in the options. If the letters need more
// room than MaxBytes, it keeps the stream's bound, so that no letter is dropped.
func EnsureStreams(ctx context.Context, o Options) error {
	maxBytes := func(want int64) int64 {
		if o.MaxStore > 0 && want > o.MaxStore {
			o.Log.Warn("a stream gets less room than configured, because the store is smaller", "component", "deadletter",
				"wanted_bytes", want, "bytes", o.MaxStore)
			return o.MaxStore
		}
		return want
	}
	lettersBytes, err := roomForLetters(ctx, o, maxBytes(o.MaxBytes))
	if err != nil {
		return err
	}
	for _, s := range []stream.Options{{Kind: "letters", Configured: stream.AgeBound | stream.SizeBound, Config: jetstream.StreamConfig{
		// Limits retention, so that any client can browse it; discard new, so that no letter is dropped to make room.
		Name: Stream, Subjects: []string{Subjects.Below()}, Discard: jetstream.DiscardNew,
		Description: "weir: dead letters, weir.dead.<api>.<reason>.<key>", MaxAge: o.MaxAge, MaxBytes: lettersBytes,
	}}, {Kind: "events", Config: jetstream.StreamConfig{
		Name: EventsStream, Subjects: []string{eventSubjects.Below()}, Discard: jetstream.DiscardOld,
		Description: "weir: notifications, weir.events.<type>.<api>.<key>", MaxAge: eventsAge, MaxBytes: maxBytes(maxEventsBytes),
	}}} {
		cfg := &s.Config
		s.Log, cfg.FirstSeq = o.Log, o.FirstSeq[cfg.Name]
		cfg.Retention, cfg.Storage, cfg.Replicas = jetstream.LimitsPolicy, jetstream.FileStorage, o.Replicas
		cfg.AllowDirect, cfg.AllowAtomicPublish = true, true
		cfg.Duplicates = min(lettersKnown, cfg.MaxAge)
		if _, err := stream.EnsureStream(ctx, o.JetStream, s); err != nil {
			return err
		}
	}
	return nil
}

// roomForLetters returns want, or the stream's present bound if its letters already need more than want. A stream that
// gets less room than it uses drops its oldest messages, even with DiscardNew.
func roomForLetters(ctx context.Context, o Options, want int64) (int64, error) {
	letters, err := stream.Look(ctx, o.JetStream, Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return want, nil
	} else if err != nil {
		return 0, fmt.Errorf("stream %s: %w", Stream, err)
	}
	info := letters.CachedInfo()
	if used := info.State.Bytes; used > uint64(want) {
		o.Log.Warn("the dead letters exceed their new bound; the former bound stays until they fit", "component", "deadletter",
			"used_bytes", used, "wanted_bytes", want)
		return info.Config.MaxBytes, nil
	}
	return want, nil
}

// ErrNoStream reports that the stream of letters does not exist: weir has not run on this server.
var ErrNoStream = errors.New("there is no dead-letter stream: weir has not run on this server")
