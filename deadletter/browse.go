package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/ingest"
)

// ErrNoLetter reports that there is no letter with this number: it never existed, or it was deleted.
var ErrNoLetter = errors.New("there is no such dead letter")

// Kept is a letter as the stream stores it. If it was listed, it has its Size but no Body.
type Kept struct {
	Letter

	Seq       uint64
	Stored    time.Time // by the server's clock
	Size      int       // of the body, in bytes
	Published string    // the subject
	Imported  time.Time // when it was first stored, on the server it came from; zero: not imported
}

// Filter chooses letters. A field with its zero value chooses all.
type Filter struct {
	API    string      `json:"api,omitempty"` // ingest.NoToken for letters of unknown apis
	Key    string      `json:"key,omitempty"`
	Reason Reason      `json:"reason,omitempty"`
	Since  time.Time   `json:"since,omitzero"` // stored then or later
	Until  time.Time   `json:"until,omitzero"` // stored before
	Status StatusRange `json:"status,omitzero"`
	Job    string      `json:"job,omitempty"` // its id
	// Before chooses the letters that were stored before the letter with this number.
	Before uint64 `json:"before,omitempty"`
}

// StatusRange is a range of HTTP statuses that includes both ends. The zero value chooses all letters.
type StatusRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// subject returns the part of the filter that the server applies.
func (f *Filter) subject() string {
	return Subjects.Match(apiName(f.API), string(f.Reason), f.Key)
}

// apiName returns a filter's api for Subjects.Match. No api is called ingest.NoToken.
func apiName(api string) string {
	if api == ingest.NoToken {
		return ingest.NoName
	}
	return api
}

// filtered returns the filter subject for a consumer. It is empty if the filter chooses all letters, because for a
// wildcard the server would compare every message.
func (f *Filter) filtered() string {
	if f.API == "" && f.Reason == "" && f.Key == "" {
		return ""
	}
	return f.subject()
}

// ChoosesCause reports whether the filter can choose a letter with this api, reason and status. api is "" for an
// unknown api.
func (f *Filter) ChoosesCause(api string, reason Reason, status int) bool {
	return (f.API == "" || f.API == api || f.API == ingest.NoToken && api == "") && (f.Reason == "" || f.Reason == reason) &&
		(f.Status == StatusRange{} || status >= f.Status.From && status <= f.Status.To)
}

// chooses applies the part of the filter that the server does not apply.
func (f *Filter) chooses(k *Kept) bool {
	return (f.Job == "" || k.JobID == f.Job) && (f.Status == StatusRange{} || k.Status >= f.Status.From && k.Status <= f.Status.To) &&
		(f.Until.IsZero() || k.Stored.Before(f.Until)) && (f.Since.IsZero() || !k.Stored.Before(f.Since))
}

// Browser reads and deletes letters. No weir needs to run.
type Browser struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// OpenBrowser opens the stream of letters. It fails with ErrNoStream if the stream does not exist.
func OpenBrowser(ctx context.Context, js jetstream.JetStream) (*Browser, error) {
	stream, err := js.Stream(ctx, Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoStream
	} else if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return &Browser{js: js, stream: stream}, nil
}

// Get reads one letter with its body from the stream's leader.
func (b *Browser) Get(ctx context.Context, seq uint64) (Kept, error) {
	return b.get(ctx, seq, stream.AskLeader)
}

// GetSoon is Get for callers that change nothing. If the stream has only one replica, GetSoon uses a direct get, which
// does not wait behind the deletions of finished jobs.
func (b *Browser) GetSoon(ctx context.Context, seq uint64) (Kept, error) {
	info := b.stream.CachedInfo()
	if info.Config.Replicas > 1 || info.Cluster != nil && len(info.Cluster.Replicas) > 0 {
		return b.Get(ctx, seq)
	}
	return b.get(ctx, seq, stream.AskReplica)
}

func (b *Browser) get(
	ctx context.Context, seq uint64, ask func(context.Context, *nats.Conn, string, string) (*stream.LeaderMessage, error),
) (Kept, error) {
	msg, err := ask(ctx, b.js.Conn(), Stream, fmt.Sprintf(`{"seq":%d}`, seq))
	if err != nil {
		return Kept{}, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	if msg == nil {
		return Kept{}, ErrNoLetter
	}
	header, err := msg.Header()
	if err != nil {
		return Kept{}, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	k := readLetter(msg.Subject, header)
	k.Seq, k.Stored, k.Body, k.Size = seq, msg.Time, msg.Data, len(msg.Data)
	return k, nil
}

// Newest passes the letters that f chooses to take, newest first and without bodies. It ends after limit letters, or if
// take fails. A limit of 0 passes all.
func (b *Browser) Newest(ctx context.Context, f Filter, limit int, take func(Kept) error) error {
	given := 0
	_, err := NewestLetters(ctx, b.js, f, 0, func(k Kept) error {
		if err := take(k); err != nil {
			return err
		}
		if given++; given == limit {
			return stream.ErrEnough
		}
		return nil
	})
	return err
}

// Each passes the letters that f chooses to take, oldest first, until take fails. For a display of progress, read
// counts the letters read so far, and of is about how many there are to read.
func (b *Browser) Each(ctx context.Context, f Filter, take func(k Kept, read, of uint64) error) error {
	walk, err := b.span(ctx, f)
	if err != nil || walk.first > walk.last {
		return err
	}
	from, err := b.countFrom(ctx, f, walk.first)
	if err != nil {
		return err
	}
	n, of := uint64(0), from-min(from, walk.later)
	return b.read(ctx, f, walk, HeadersOnly, 0, func(k Kept) error {
		n++
		if !f.chooses(&k) {
			return nil
		}
		return take(k, n, of)
	})
}

// span is a part of the stream, from one sequence to another, and the number of letters after it that match the
// filter's subject.
type span struct{ first, last, later uint64 }

// span returns the part of the stream that the filter's times and Before allow.
func (b *Browser) span(ctx context.Context, f Filter) (span, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return span{}, fmt.Errorf("dead letters: %w", err)
	}
	s := span{first: max(1, info.State.FirstSeq), last: info.State.LastSeq}
	if info.State.Msgs == 0 {
		return span{first: 1}, nil
	}
	if !f.Since.IsZero() {
		first, _, err := b.firstFrom(ctx, f, f.Since)
		if err != nil {
			return span{}, err
		}
		if first == 0 {
			return span{first: 1}, nil
		}
		s.first = max(s.first, first)
	}
	if !f.Until.IsZero() {
		first, matching, err := b.firstFrom(ctx, f, f.Until)
		if err != nil {
			return span{}, err
		}
		if first > 0 {
			s.last, s.later = min(s.last, first-1), matching
		}
	}
	if f.Before > 0 && f.Before <= s.last {
		later, err := b.countFrom(ctx, f, f.Before)
		if err != nil {
			return span{}, err
		}
		s.last, s.later = f.Before-1, later
	}
	return s, nil
}

// firstFrom returns the sequence of the first letter stored at or after a time, or 0 if there is none, and about how
// many letters match from there on.
func (b *Browser) firstFrom(ctx context.Context, f Filter, at time.Time) (seq, matching uint64, err error) {
	first, err := stream.FirstSince(ctx, b.js.Conn(), Stream, f.subject(), at)
	if err != nil || first == nil {
		return 0, 0, err
	}
	matching, err = b.count(ctx, f, func(c *jetstream.ConsumerConfig) {
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &at
	})
	return first.Seq, matching, err
}

// Follow passes the letters that f chooses to take as they are stored, from f.Since or from now on. It blocks until ctx
// ends, which is no error, or take fails.
func (b *Browser) Follow(ctx context.Context, f Filter, take func(Kept) error) error {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{f.subject()}, HeadersOnly: true}
	if f.Since.IsZero() {
		info, err := b.stream.Info(ctx)
		if err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, info.State.LastSeq+1
	} else {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &f.Since
	}
	var failed error
	err := stream.Follow(ctx, b.stream, cfg, func(msg jetstream.Msg) error {
		if k, ok := ReadKept(msg); ok && f.chooses(&k) {
			failed = take(k)
		}
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("follow the dead letters: %w", err)
}

// ReadKept reads a letter. It returns false if msg is not a message of a stream.
func ReadKept(msg jetstream.Msg) (Kept, bool) {
	meta, err := msg.Metadata()
	if err != nil {
		return Kept{}, false
	}
	k := readLetter(msg.Subject(), msg.Headers())
	k.Seq, k.Stored = meta.Sequence.Stream, meta.Timestamp
	if body := msg.Data(); len(body) > 0 {
		k.Body, k.Size = body, len(body)
	}
	if size, err := strconv.Atoi(k.Header.Get(headerSize)); err == nil && k.Size == 0 {
		k.Size = size // the message was delivered without its body
	}
	return k, true
}

// headerSize is the header in which the server names the size of a body that it omits.
const headerSize = "Nats-Msg-Size"

// NewestLetters passes the letters that f chooses to take, newest first and without bodies, until take fails;
// stream.ErrEnough ends it without an error. It reads at most most messages, or all if most is 0, and reports how far
// back it got. It fails with ErrNoStream if the stream does not exist.
func NewestLetters(ctx context.Context, js jetstream.JetStream, f Filter, most int, take func(Kept) error) (stream.Reach, error) {
	n := stream.Newest{JetStream: js, Stream: Stream, Subject: f.filtered(), Since: f.Since, Before: f.Before, Most: most, Bare: true}
	if !f.Until.IsZero() {
		later, err := stream.FirstSince(ctx, js.Conn(), Stream, f.subject(), f.Until)
		if err != nil {
			return stream.Reach{}, err
		}
		if later != nil && (n.Before == 0 || later.Seq < n.Before) {
			n.Before = later.Seq
		}
	}
	reach, err := n.Read(ctx, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		if k, ok := ReadKept(msg); ok && f.chooses(&k) {
			return take(k)
		}
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return reach, ErrNoStream
	}
	return reach, err
}

// FollowAfter passes the letters after a sequence to take, without bodies: the stored ones first, then new ones as they
// are stored. It blocks until ctx ends, take fails, or the stream can no longer be read.
func (b *Browser) FollowAfter(ctx context.Context, after uint64, take func(Kept) error) error {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1}
	return stream.Follow(ctx, b.stream, cfg, func(msg jetstream.Msg) error {
		if k, ok := ReadKept(msg); ok {
			return take(k)
		}
		return nil
	})
}
