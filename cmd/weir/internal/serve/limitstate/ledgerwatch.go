package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// LedgerWatch finds records that are missing from the ledger. weir deletes no record: the stream drops records by age,
// or the oldest when it is full. If any other record is missing, an operator deleted it, or the store is damaged.
// LedgerWatch stores the extent of the ledger every second, so a start notices what was lost while no weir ran. If weir
// was killed, the flight recorder knows how far the ledger reached after the last stored extent. LedgerWatch is safe
// for concurrent use.
type LedgerWatch struct {
	o *Options

	mu      sync.Mutex // guards note and damages
	note    ledgerNote
	damages []LedgerLoss // records that accounts could not read; these accounts have already begun anew
}

// ledgerNote is the extent of the ledger as last noted, with its losses.
type ledgerNote struct {
	Born    time.Time    `json:"born"`
	First   uint64       `json:"first"`
	FirstAt time.Time    `json:"first_at"` // when record First was stored
	Last    uint64       `json:"last"`
	Deleted int          `json:"deleted"` // records missing between First and Last
	Life    uint64       `json:"life"`    // the newest process whose flight recorder was asked how far the ledger reached
	Lost    int          `json:"lost"`    // number of losses ever found
	Losses  []LedgerLoss `json:"losses,omitempty"`
}

// LedgerLoss is a missing part of the ledger.
type LedgerLoss struct {
	Kind    string    `json:"kind"` // end, beginning, between, all or damaged
	Records uint64    `json:"records"`
	From    uint64    `json:"from"` // From and To are the first and last missing sequence, as far as known
	To      uint64    `json:"to"`
	Noticed time.Time `json:"noticed"`
}

// Why describes the loss.
func (l *LedgerLoss) Why() string {
	noticed := "; noticed at " + l.Noticed.UTC().Format(time.RFC3339)
	if l.Kind == damaged {
		return fmt.Sprintf("record %d of the ledger (%s) cannot be read, and others may not either: its store is damaged", l.From, ledger.CallsStream) + noticed
	}
	what := fmt.Sprintf("%d records of the ledger (%s), of sequences %d to %d, are gone", l.Records, ledger.CallsStream, l.From, l.To)
	return what + map[string]string{
		"end":       ": its store is damaged, or its end was deleted",
		"beginning": " before their time: they were deleted",
		"between":   ": they were deleted",
		"all":       ": the stream was deleted and made anew",
	}[l.Kind] + noticed
}

const (
	ledgerKey  = "ledger"
	damageKey  = "ledger.damage" // a separate key, so that a replica's note does not overwrite the damage that another replica's account found
	damaged    = "damaged"       // the kind of a loss that an account found
	mostLosses = 16              // how many losses are kept; the newest stay
	// toldFor is how long after a loss was noticed the status shows it.
	toldFor = 24 * time.Hour
	// ageSlack is how long before its maximum age a record may already be deleted by age.
	ageSlack = time.Minute
)

// OpenLedgerWatch compares the ledger with the note of the last run. It must run before this process records its first
// call.
func OpenLedgerWatch(ctx context.Context, o *Options) (*LedgerWatch, error) {
	w := &LedgerWatch{o: o}
	var err error
	if w.note, w.damages, err = w.readLosses(ctx); err != nil {
		return nil, err
	}
	reached, life := o.Recorder.FormerLedger(w.note.Born, w.note.Life)
	w.note.Last, w.note.Life = max(w.note.Last, reached), life
	return w, w.look(ctx)
}

// readLosses reads the stored values from the stream's leader.
func (w *LedgerWatch) readLosses(ctx context.Context) (note ledgerNote, damages []LedgerLoss, err error) {
	return readLosses(w.o.Control.Bucket(), func(key string) ([]byte, error) {
		m, err := newestOf(ctx, w.o.Conn, w.o.Control, key)
		return m.Data, err
	})
}

// readLosses reads the note about the ledger and the losses by damage. Both are empty if none were stored. value
// returns the value of a key, nil if there is none.
func readLosses(bucket string, value func(key string) ([]byte, error)) (note ledgerNote, damages []LedgerLoss, err error) {
	for key, into := range map[string]any{ledgerKey: &note, damageKey: &damages} {
		data, err := value(key)
		if err != nil {
			return note, nil, fmt.Errorf("what is known of losses of the ledger: %w", err)
		}
		if data == nil {
			continue
		}
		if err := json.Unmarshal(data, into); err != nil {
			return note, nil, fmt.Errorf("what is known of losses of the ledger (%s in %s) cannot be read: %w", key, bucket, err)
		}
	}
	return note, damages, nil
}

// Run compares the ledger with the note every second until ctx ends, and then once more.
func (w *LedgerWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(levelsEvery)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return w.look(context.WithoutCancel(ctx))
		}
		err := w.look(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != told {
			w.o.Log.Warn("could not check whether records of calls are missing; trying again", "component", "limits", "err", err)
			told = err.Error()
		} else if err == nil {
			told = ""
		}
	}
}

func (w *LedgerWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, accountWait)
	defer cancel()
	calls, err := w.o.JetStream.Stream(ctx, ledger.CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	w.o.Recorder.LedgerIs(calls.CachedInfo().Created)
	w.mu.Lock()
	was := w.note
	w.mu.Unlock()
	next, losses := was.compare(calls.CachedInfo(), time.Now())
	if next.same(&was) {
		return nil
	}
	data, err := json.Marshal(next)
	if err != nil {
		panic("a note of the ledger that JSON cannot carry: " + err.Error())
	}
	if _, err := w.o.Control.Put(ctx, ledgerKey, data); err != nil {
		return fmt.Errorf("how far the ledger reaches: %w", err)
	}
	w.mu.Lock()
	w.note = next
	w.mu.Unlock()
	for i := range losses {
		w.tell(&losses[i], next.Born)
	}
	return nil
}

func (n *ledgerNote) same(other *ledgerNote) bool {
	return n.Born.Equal(other.Born) && n.First == other.First && n.Last == other.Last && n.Deleted == other.Deleted && n.Lost == other.Lost
}

// compare finds what the ledger has lost since the note, and returns the new note.
func (n ledgerNote) compare(info *jetstream.StreamInfo, now time.Time) (next ledgerNote, losses []LedgerLoss) {
	s := &info.State
	lose := func(kind string, records, from, to uint64) {
		losses = append(losses, LedgerLoss{kind, records, from, to, now.UTC()})
	}
	kept := n.Last + 1 - n.First
	switch held := info.Config.MaxAge <= 0 || now.Before(n.FirstAt.Add(info.Config.MaxAge-ageSlack)); {
	case n.Born.IsZero() || n.Last == 0:
	case !info.Created.Equal(n.Born) && !n.copiedTo(s):
		lose("all", kept, n.First, n.Last)
	case s.LastSeq < n.Last:
		lose("end", n.Last-s.LastSeq, s.LastSeq+1, n.Last)
	case s.FirstSeq > n.First && n.Last >= n.First && held && !nearlyFull(info):
		lose("beginning", s.FirstSeq-n.First, n.First, s.FirstSeq-1)
	case s.NumDeleted > n.Deleted:
		lose("between", uint64(s.NumDeleted-n.Deleted), s.FirstSeq, s.LastSeq) //nolint:gosec // it is positive
	}
	next = ledgerNote{Born: info.Created, First: s.FirstSeq, FirstAt: s.FirstTime, Last: s.LastSeq, Deleted: s.NumDeleted, Life: n.Life, Lost: n.Lost + len(losses)}
	next.Losses = append(append(next.Losses, n.Losses...), losses...)
	next.Losses = next.Losses[max(0, len(next.Losses)-mostLosses):]
	return next, losses
}

// copiedTo reports whether the present stream is a copy of the noted one, with the same sequences and times: "weir
// move" and a restored backup make such copies. Records that a copy lacks are losses like any others.
func (n *ledgerNote) copiedTo(s *jetstream.StreamState) bool {
	return s.LastSeq >= n.Last && s.FirstSeq >= n.First && s.FirstSeq <= n.Last && (s.FirstSeq != n.First || s.FirstTime.Equal(n.FirstAt))
}

// nearlyFull reports whether a stream may have deleted its oldest messages for lack of room.
func nearlyFull(info *jetstream.StreamInfo) bool {
	return info.Config.MaxBytes > 0 && info.State.Bytes > uint64(info.Config.MaxBytes)/2
}

// damaged stores and reports a record that an account could not read. If several accounts find the same record, it is
// reported once.
func (w *LedgerWatch) damaged(ctx context.Context, d *ledger.Damage) error {
	if w == nil {
		return nil // only in tests of limits
	}
	note, kept, err := w.readLosses(ctx)
	if err != nil {
		return err
	}
	loss := LedgerLoss{damaged, 1, d.Seq, d.Seq, time.Now().UTC()}
	known := slices.ContainsFunc(kept, func(l LedgerLoss) bool { return l.From == loss.From && !l.Noticed.Before(note.Born) })
	if !known {
		kept = append(kept, loss)
		kept = kept[max(0, len(kept)-mostLosses):]
		data, err := json.Marshal(kept)
		if err != nil {
			panic("damages of the ledger that JSON cannot carry: " + err.Error())
		}
		if _, err := w.o.Control.Put(ctx, damageKey, data); err != nil {
			return fmt.Errorf("damages of the ledger: %w", err)
		}
	}
	w.mu.Lock()
	w.damages = kept
	w.mu.Unlock()
	if !known {
		w.tell(&loss, note.Born)
	}
	return nil
}

// LedgerData is the data of a ledger event.
type LedgerData struct {
	Kind    string    `json:"kind"` // end, beginning, between, all or damaged
	Records uint64    `json:"records"`
	From    uint64    `json:"from"`
	To      uint64    `json:"to"`
	Noticed time.Time `json:"noticed"`
	Why     string    `json:"why"`
}

func (w *LedgerWatch) tell(l *LedgerLoss, born time.Time) {
	w.o.Log.Error("records of calls are gone or cannot be read: what they cost is missing in every sum, and quotas and budgets count the most that may have been called",
		"component", "limits", "kind", l.Kind, "records", l.Records, "from", l.From, "to", l.To)
	if w.o.Letters == nil {
		return // only in tests of limits
	}
	id := fmt.Sprintf("ledger.%d.%s.%d.%d.%d", born.UnixMicro(), l.Kind, l.From, l.To, l.Records)
	w.o.Letters.Send(deadletter.Event{Type: deadletter.LedgerEvent, ID: id, Data: LedgerData{l.Kind, l.Records, l.From, l.To, l.Noticed, l.Why()}}, func(err error) {
		if err != nil {
			w.o.Log.Warn("could not store the event that records of calls are missing", "component", "limits", "err", err)
		}
	})
}

// lost returns the number of losses so far, without damaged records.
func (w *LedgerWatch) lost() int {
	if w == nil {
		return 0 // only in tests of limits
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.note.Lost
}

// Problem describes the newest loss if it was noticed within the last day, else it returns "".
func (w *LedgerWatch) Problem() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, losses := range [][]LedgerLoss{w.note.Losses, w.damages} {
		if n := len(losses); n > 0 && time.Since(losses[n-1].Noticed) < toldFor {
			return losses[n-1].Why()
		}
	}
	return ""
}

// LedgerLosses returns the losses that were noticed at or after since. If there are any, records of calls before since
// may be missing too. LedgerLosses returns none if weir has stored no note.
func LedgerLosses(ctx context.Context, js jetstream.JetStream, control string, since time.Time) (losses []LedgerLoss, err error) {
	kv, err := js.KeyValue(ctx, control)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("losses of the ledger: %w", err)
	}
	note, damages, err := readLosses(control, func(key string) ([]byte, error) {
		entry, err := kv.Get(ctx, key) // viewers may read these keys only from replicas
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return entry.Value(), nil
	})
	if err != nil {
		return nil, err
	}
	for _, l := range append(note.Losses, damages...) {
		if !l.Noticed.Before(since) {
			losses = append(losses, l)
		}
	}
	return losses, nil
}
