package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// ErrFenced says that a write names an epoch that is not the stream's: another owner has stored its own epoch, or this
// owner's epoch was deleted by hand.
var ErrFenced = errors.New("this replica does not own the partition: another owner's epoch is stored there, or this owner's epoch was deleted")

// errNoRoom says that the stream has no room for another epoch. Its server still counts an epoch that it cannot read,
// and cannot delete that epoch either.
var errNoRoom = errors.New("its server cannot read the epoch of an earlier owner, and lets in no more messages of one subject than a key may have jobs")

// Bounds of the markers of one partition that wait to be stored.
const (
	maxMarkers     = 8192
	maxMarkerBytes = 16 << 20
)

// Intent says that call number Call of the job with sequence Seq may start. After a crash, a call with an intent and no
// outcome may or may not have been made.
type Intent struct {
	Seq  uint64 `json:"seq"`
	Call int    `json:"call"`
	// Idempotency describes the call's idempotency key: what it looks like, where it goes, and since when the api may
	// know it. It is "" if the call carries none. To the api, a call with another idempotency key is another call. This
	// field and those down to Target are stored because the api's configuration may have changed when the intent is
	// read.
	Idempotency string        `json:"idempotency,omitempty"`
	Timeout     time.Duration `json:"timeout"`         // how long the call may run
	Price       int64         `json:"price,omitempty"` // of the call, in millionths
	// Target names the place that the call goes to. An inquiry about the call must ask the same place.
	Target string `json:"target"`
	// Deaths is how many owners have died, one after the other, with a call of this job under way.
	Deaths int `json:"deaths,omitempty"`
	// Accepted is when the stream stored the job. It tells the job from another job that got the same Seq after the
	// stream lost its last writes.
	Accepted bucket.Micros `json:"accepted"`
	// Epoch is the epoch of the owner that wrote the intent. Intend sets it.
	Epoch uint64 `json:"epoch"`
	// KeySum is the KeySum of the job's key. The next owner makes no call of the key before it has read the job.
	KeySum uint64 `json:"key_sum"`
	// Entry is the call's entry in the flight recorder of the owner's process; 0: none.
	Entry uint64 `json:"entry,omitempty"`
	// Pack says which pack the call is for; nil if the call is for this job alone. The intents of a pack's jobs are in
	// one message.
	Pack *Pack `json:"pack,omitempty"`
}

// Pack is a job's place among the jobs of one call. Intents, retry marks and the ledger's records store it.
type Pack struct {
	ID    string `json:"id"`    // the idempotency key of the call
	Place int    `json:"place"` // from 0 on
	Of    int    `json:"of"`    // jobs of the call
}

// Follows reports whether the pack's call is counted with another job than this one. The call is counted with the job
// at place 0.
func (p *Pack) Follows() bool { return p != nil && p.Place > 0 }

// Operation is work that an api continues after it has accepted a call. weir polls it until it has ended, and never
// submits its job again. The job's mark, the ledger and the job's letter store it.
type Operation struct {
	Address string        `json:"address"`          // the url at which it is polled
	Cancel  string        `json:"cancel,omitempty"` // the url at which it is cancelled; "": it cannot be cancelled
	Started time.Time     `json:"started"`          // when the call that began it started
	Until   bucket.Micros `json:"until"`            // when weir stops polling, by the wall clock
	Price   int64         `json:"price,omitempty"`  // of the call, in millionths
	Target  string        `json:"target"`           // as in Intent
	Holds   bool          `json:"holds,omitempty"`  // the operation counts as a call in flight until it has ended
	// Costs are the units that the call was charged from each shared limit. Limits identifies the set of these limits.
	Costs  []int64 `json:"costs,omitempty"`
	Limits uint64  `json:"limits,omitempty"`
}

// RetryMark is what a restart must know of a job that was called and will be called again.
type RetryMark struct {
	Seq       uint64        `json:"seq"`
	Calls     int           `json:"calls"`             // made so far
	Attempts  int           `json:"attempts"`          // calls that count against the retry budget
	Crashes   int           `json:"crashes,omitempty"` // calls during which weir crashed
	NotBefore bucket.Micros `json:"not_before"`        // by the wall clock
	Reason    string        `json:"reason"`
	Billed    string        `json:"billed,omitempty"`   // what is known of the charges so far
	Status    int           `json:"status,omitempty"`   // the api's last answer
	Answered  uint64        `json:"answered,omitempty"` // sequence of that answer's record in the ledger
	Unseen    bool          `json:"unseen,omitempty"`   // no call is known to have reached the api: no job of its key overtakes it
	Pushback  bool          `json:"pushback,omitempty"` // the api named NotBefore: it holds the key or the api, not only the job
	// Idempotency is the Idempotency of the calls that the api may have processed (see Intent); "" if none is known.
	Idempotency string `json:"idempotency,omitempty"`
	// Deaths is how many owners have died, one after the other, with a call of this job under way.
	Deaths int `json:"deaths,omitempty"`
	// Ends says that the job is not called again: it becomes a letter with this reason, and Reason is the detail. The
	// value EndsReused says that the job was about to end with another job's answer.
	Ends string `json:"ends,omitempty"`
	// Operation says that the api accepted the last call: the job is polled and not called again.
	Operation *Operation `json:"operation,omitempty"`

	// Pack is the pack in whose calls the api may have processed the job; nil for none. The job is called again in that
	// pack only.
	Pack *Pack `json:"pack,omitempty"`

	// Accepted and KeySum are those of the job (see Intent).
	Accepted bucket.Micros `json:"accepted,omitempty"`
	// Epoch is the epoch of the owner that wrote the mark. Retry sets it. No stream refuses the mark of an earlier
	// owner.
	Epoch  uint64 `json:"epoch,omitempty"`
	KeySum uint64 `json:"key_sum,omitempty"`

	// Key is the key that is held until NotBefore, or "" for the whole api. It is used only if Seq is 0: the job whose
	// call got the pushback has ended.
	Key string `json:"key,omitempty"`
	// Denied says that the mark holds the api because the api denies weir itself. After NotBefore only one call may try
	// first.
	Denied bool `json:"denied,omitempty"`
}

// Markers writes one partition's markers. It is safe for concurrent use.
type Markers struct {
	p          *Partition
	w          *stream.Writer
	mu         sync.Mutex // guards epoch
	epoch      uint64     // the sequence of this owner's epoch
	died       bool
	held       time.Duration // how long the former owner had the partition, if it died; 0: unknown
	unreadable bool          // the former owner's epoch cannot be read
}

// AfterDeath reports whether the former owner did not give the partition up. If so, the outcomes of its calls are
// unknown.
func (m *Markers) AfterDeath() bool { return m.died }

// Held returns for how long the former owner had the partition: from its takeover to this owner's, by the servers'
// clock. It returns 0 if the former owner gave the partition up, or if the time is unknown.
func (m *Markers) Held() time.Duration { return m.held }

// Epoch returns the sequence of this owner's epoch. All messages that were in the stream before have lower sequences.
func (m *Markers) Epoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// GiveUp deletes this owner's epoch. The stream then refuses the owner's intents. No call of the owner may be under
// way.
func (m *Markers) GiveUp(ctx context.Context) error {
	at := m.p.contents.epoch()
	of := &m.p.source
	err := of.stream.Purge(ctx, jetstream.WithPurgeSubject(of.owner()), jetstream.WithPurgeSequence(at+1))
	if err != nil {
		return fmt.Errorf("give %s up: %w", m.p.source.name, err)
	}
	return nil
}

// Unreadable reports whether the stream counts an epoch that its server cannot read. weir assumes that the owner of
// that epoch has died.
func (m *Markers) Unreadable() bool { return m.unreadable }

// Own makes this process the partition's owner: it publishes an epoch to the owner's subject. From then on the stream
// refuses the intents of every earlier owner, even of one whose epoch cannot be read. Own fails with ErrFenced if
// another owner publishes an epoch at the same time. The Markers work while Run runs.
func (p *Partition) Own(ctx context.Context, instance string) (*Markers, error) {
	subject := p.source.owner()
	if _, _, err := p.lookAgain(ctx); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	// Own deletes the earlier epochs first: the stream may hold only one message of a subject, if that is the keys'
	// capacity. From then on the stream refuses an earlier owner's intents. Own deletes only the epochs known now,
	// because an epoch that is published meanwhile is a later owner's.
	earlier, err := stream.AskLeader(ctx, p.source.nc, p.source.name, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err != nil {
		return nil, fmt.Errorf("take over %s: %w", p.source.name, err)
	}
	info, err := p.source.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return nil, fmt.Errorf("take over %s: %w", p.source.name, err)
	}
	// A server reports an epoch that it cannot read as absent, but counts it. The owner of such an epoch did not give
	// it up.
	counted := info.State.Subjects[subject]
	unreadable := earlier == nil && counted > 0
	if most := info.Config.MaxMsgsPerSubject; unreadable && most > 0 && counted >= uint64(most) {
		return nil, fmt.Errorf("take over %s: %w: configure a capacity of %d for any key of api %s, also for one that has no jobs",
			p.source.name, errNoRoom, counted+1, p.source.api)
	}
	var held time.Duration
	if earlier != nil {
		held = info.TimeStamp.Sub(earlier.Time)
		if err := p.source.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(earlier.Seq+1)); err != nil {
			return nil, fmt.Errorf("take over %s: drop earlier epochs: %w", p.source.name, err)
		}
	}
	fault.Pass(fault.EpochDropped)
	epoch, err := p.source.storeEpoch(ctx, instance)
	if err != nil {
		return nil, err
	}
	p.contents.own(epoch)
	fault.Pass(fault.EpochStored)
	w, err := stream.NewWriter(p.source.nc, stream.DiskOf(p.source.js), maxMarkers, maxMarkerBytes)
	if err != nil {
		return nil, err
	}
	return &Markers{p: p, w: w, epoch: epoch, died: earlier != nil || unreadable, held: held, unreadable: unreadable}, nil
}

// Run stores markers until ctx ends.
func (m *Markers) Run(ctx context.Context) error { return m.w.Run(ctx) }

// markerHeaders is room for the headers of a message of markers.
const markerHeaders = 1 << 10

// MostMarkers returns how many bytes of markers one message may have. The stream accepts at least that many.
func (p *Partition) MostMarkers() int64 {
	return p.queue.settings.Load().longest() - markerHeaders
}

// Intend stores intents, all in one message, which must have at most MostMarkers bytes. It returns the message's
// sequence, and blocks until the message is stored or refused. The error is ErrFenced if this owner's epoch is no
// longer the stream's: Fence then returns whose epoch the stream has.
func (m *Markers) Intend(intents ...Intent) (seq uint64, err error) {
	epoch := m.Epoch()
	for i := range intents {
		intents[i].Epoch = epoch
	}
	data, err := json.Marshal(intents)
	if err != nil {
		panic("bucket: intents that JSON cannot carry: " + err.Error())
	}
	id := nuid.Next()
	msg := &nats.Msg{
		Subject: m.p.source.subject(kindIntent, id), Data: data,
		Header: nats.Header{
			ingest.HeaderMsgID:           {"intent." + id},
			stream.HeaderExpectedSeq:     {strconv.FormatUint(epoch, 10)},
			stream.HeaderExpectedSubject: {m.p.source.owner()},
		},
	}
	if fault.Planted(fault.NoFence) {
		delete(msg.Header, stream.HeaderExpectedSeq)
		delete(msg.Header, stream.HeaderExpectedSubject)
	}
	a := m.w.Write(msg)
	if errors.Is(a.Err, stream.ErrStale) {
		a.Err = fmt.Errorf("%w: %w", ErrFenced, a.Err)
	}
	return a.Seq, a.Err
}

// Retry stores a retry mark and returns its sequence. It blocks until the mark is stored or refused.
func (m *Markers) Retry(mark RetryMark) (seq uint64, err error) {
	mark.Epoch = m.Epoch()
	name := fmt.Sprintf("%d-%d", mark.Seq, mark.Calls)
	switch {
	case mark.Ends == EndsReused: // a later owner may store such a mark too, or a mark of another end
		name += fmt.Sprintf("-reused-%d", mark.Epoch)
	case mark.Ends != "":
		name += "-end" // beside the mark of the last call
	case mark.Operation != nil:
		name += "-op" // another owner may have stored that the same call failed
	}
	return m.write(mark, name)
}

// Again stores a mark of an operation again after the mark was deleted by hand, and returns its new sequence. It blocks
// until the mark is stored or refused.
func (m *Markers) Again(mark RetryMark) (seq uint64, err error) {
	mark.Epoch = m.Epoch()
	// The message needs a new id: the stream would take the former one for a duplicate.
	return m.write(mark, fmt.Sprintf("%d-%d-op-%s", mark.Seq, mark.Calls, nuid.Next()))
}

// write stores a mark. No other mark may have the same name.
func (m *Markers) write(mark RetryMark, name string) (seq uint64, err error) {
	data, err := json.Marshal(mark)
	if err != nil {
		panic("bucket: a retry mark that JSON cannot carry: " + err.Error())
	}
	a := m.w.Write(&nats.Msg{
		Subject: m.p.source.subject(kindRetry, name), Data: data, Header: nats.Header{ingest.HeaderMsgID: {"retry." + name}},
	})
	return a.Seq, a.Err
}

// Hold stores that a key, or the whole api if key is "", must not be called before until. It returns the mark's
// sequence, and blocks until the mark is stored or refused.
func (m *Markers) Hold(key string, until bucket.Micros, why string) (seq uint64, err error) {
	return m.write(RetryMark{Key: key, NotBefore: until, Reason: why, Pushback: true}, "hold-"+nuid.Next())
}

// Deny stores that the api denies weir and must not be called before until. It returns and blocks as Hold does.
func (m *Markers) Deny(until bucket.Micros, why string) (seq uint64, err error) {
	return m.write(RetryMark{NotBefore: until, Reason: why, Pushback: true, Denied: true}, "hold-"+nuid.Next())
}

// EndsReused is the value of Ends for a job that ends with another job's answer. Such a job was never called.
const EndsReused = "reused"

// ToldLost is the value of Ends in a note that NoteLost stores.
const ToldLost = "told lost"

// NoteLost stores that n losses of a key were reported, or, if key is "", n losses of messages without a known key. It
// returns the note's sequence, and blocks until the note is stored or refused.
func (m *Markers) NoteLost(key string, n int) (seq uint64, err error) {
	return m.write(RetryMark{Key: key, Calls: n, Ends: ToldLost}, "hold-"+nuid.Next())
}

// Intents decodes the message of intents.
func (e Entry) Intents() ([]Intent, error) {
	var intents []Intent
	if err := json.Unmarshal(e.Data, &intents); err != nil {
		return nil, fmt.Errorf("intent %d: %w", e.Seq, err)
	}
	return intents, nil
}

// RetryMark decodes the message of a retry mark.
func (e Entry) RetryMark() (RetryMark, error) {
	var mark RetryMark
	if err := json.Unmarshal(e.Data, &mark); err != nil {
		return mark, fmt.Errorf("retry %d: %w", e.Seq, err)
	}
	return mark, nil
}

// Markers come after their jobs in the stream, and no call of a job may start before its markers are known. So the
// reader reads the markers first, without the jobs. Calls then need not wait until a long queue has been read.

// readMarkers passes every marker before this owner's epoch to Mark. It begins where an earlier reading stopped.
func (r *reading) readMarkers(ctx context.Context) error {
	of := &r.p.source
	o := stream.Until{
		Conn: of.nc, Stream: of.stream, Last: r.fence - 1,
		From: jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.marks + 1,
			FilterSubjects: []string{
				of.subject(kindIntent, ">"), of.subject(kindRetry, ">"),
			},
		},
	}
	some, err := o.More(ctx, r.marks) // mostly there are none, and no consumer is needed
	if err == nil && some {
		err = stream.ReadUntil(ctx, o, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			r.mark(msg, meta)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("read the markers of %s: %w", of.name, err)
	}
	return nil
}

// mark passes one marker to Mark, unless Mark has received it before.
func (r *reading) mark(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
	seq := meta.Sequence.Stream
	kind, _, ok := parseQueueSubject(msg.Subject())
	if !ok || seq <= r.marks {
		return
	}
	r.marks = seq
	r.given++
	r.Mark(Entry{Kind: kindOf(kind), Seq: seq, Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp})
}

// kindOf returns the kind of entry for the kind in a queue subject.
func kindOf(kind string) EntryKind {
	switch kind {
	case kindIntent:
		return IntentEntry
	case kindRetry:
		return RetryEntry
	}
	return JobEntry
}
