package restoreguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options of a Keeper. All are required except DataDir and Places.
type Options struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	DataDir   string // data directory of the embedded server; "": the server is external
	Places    []Place
	// Synced is the longest time until a write is on the server's disk. The Keeper writes what it saw of the streams
	// into a note only when that time has passed.
	Synced time.Duration
	// Unsynced says that a flush does not guarantee that a write is on disk.
	Unsynced bool
	Log      *slog.Logger
}

// Keeper notes how far a store has come, and compares the store with earlier notes. One goroutine uses it.
type Keeper struct {
	Options

	former  lineage   // the lineage before Begin
	begun   time.Time // when Begin was called
	present lineage   // the lineage since Begin
	least   uint64    // the newest generation in any note; 0 if there is no note
}

// NewKeeper returns a Keeper.
func NewKeeper(o Options) *Keeper { return &Keeper{Options: o} }

// Examine looks for signs that the store was restored, and logs what it cannot check. It changes nothing. It fails if
// it cannot read a place, or if a later version of weir has written a note.
func (k *Keeper) Examine(ctx context.Context) (found []Suspicion, err error) {
	if k.DataDir != "" {
		s, untold, err := ExamineDirectory(k.DataDir)
		if err != nil {
			return nil, err
		}
		if untold != "" {
			k.Log.Warn("cannot tell whether the data directory was restored from a backup", "dir", k.DataDir, "why", untold)
		}
		if s != nil {
			found = append(found, *s)
		}
	} else if len(k.Places) == 0 {
		k.Log.Info("cannot tell whether the streams were restored from a backup: set WEIR_STATE_DIR to a directory that lasts")
	}
	is, _, err := readLineage(ctx, k.Control, k.Conn)
	if err != nil {
		return nil, err
	}
	k.former = is
	for _, p := range k.Places {
		n, err := readNote(ctx, p, is.Store)
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}
		k.least = max(k.least, n.Generation)
		s, err := k.compare(ctx, p, n, is)
		if err != nil {
			return nil, err
		}
		if s != nil {
			found = append(found, *s)
		}
	}
	return found, nil
}

// ExamineLate is Examine for one place that was unreachable during Examine. It may run after Begin and beside Run. It
// returns nil if nothing is suspicious. It ignores a note that is newer than Begin, because another replica wrote that
// note after it had examined the store itself.
func (k *Keeper) ExamineLate(ctx context.Context, p Place) (*Suspicion, error) {
	n, err := readNote(ctx, p, k.present.Store)
	if err != nil || n == nil || !n.At.Before(k.begun) {
		return nil, err
	}
	return k.compare(ctx, p, n, k.former)
}

// compare compares the store with the note of one place.
func (k *Keeper) compare(ctx context.Context, p Place, n *note, is lineage) (*Suspicion, error) {
	seen := n.At.UTC().Format(time.RFC3339)
	switch {
	case is.Store == "":
		return &Suspicion{fmt.Sprintf("no weir was ever started on this store, and %s knows one of %s", p, seen), n.At, true}, nil
	case is.Store != n.Store:
		return &Suspicion{fmt.Sprintf("%s knows another store than this, of %s", p, seen), n.At, true}, nil
	case is.Generation < n.Generation:
		return &Suspicion{fmt.Sprintf("weir was started %d times on this store, and %s knows of %d, the last at %s", is.Generation, p, n.Generation, seen), n.At, false}, nil
	}
	names := make([]string, 0, len(n.Streams))
	for name := range n.Streams {
		names = append(names, name)
	}
	marks, err := marksOf(ctx, k.JetStream, names)
	if err != nil {
		return nil, err
	}
	back, renewed := behind(n.Streams, marks, n.At)
	for _, what := range renewed {
		k.Log.Warn("a stream was deleted since weir last ran: what it held is gone", "what", what)
	}
	if len(back) == 0 {
		return nil, nil //nolint:nilnil // nothing is suspicious
	}
	const most = 4
	more := ""
	if len(back) > most {
		more = fmt.Sprintf(", and %d more", len(back)-most)
	}
	return &Suspicion{fmt.Sprintf("streams are older than %s knows them, of %s: %s%s", p, seen, strings.Join(back[:min(len(back), most)], ", "), more), n.At, false}, nil
}

// Begin counts up the store's generation and marks the data directory, so that a later start on an older copy is
// detected. flush blocks until the new generation is on disk.
func (k *Keeper) Begin(ctx context.Context, flush func(context.Context) error) (err error) {
	k.begun = time.Now()
	if k.present, err = advance(ctx, k.Control, k.Conn, k.least); err != nil {
		return err
	}
	if err := flush(ctx); err != nil {
		return err
	}
	if k.DataDir != "" {
		if err := MarkDirectory(k.DataDir, time.Now()); err != nil {
			return err
		}
	}
	if k.Unsynced {
		return nil // a power cut may lose the generation: Run notes it later
	}
	return k.write(ctx, &note{At: time.Now()})
}

func (k *Keeper) write(ctx context.Context, n *note) error {
	n.Schema, n.Store, n.Generation, n.At = stream.Schema, k.present.Store, k.present.Generation, n.At.UTC()
	var errs []error
	for _, p := range k.Places {
		errs = append(errs, n.write(ctx, p))
	}
	return errors.Join(errs...)
}

// noteEvery is the time between two looks at the streams.
const noteEvery = 10 * time.Second

// Run notes how far the streams have come until ctx ends. It notes that every noteEvery, or less often if Synced is
// longer. It logs failures and tries again.
func (k *Keeper) Run(ctx context.Context) error {
	if len(k.Places) == 0 {
		return nil
	}
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	var seen *note // the last look at the streams, if it is not noted yet
	told := ""
	for {
		err := k.round(ctx, &seen)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			k.Log.Warn("could not note the streams' last sequences: a restored backup may go unnoticed", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// round writes the note of the last look if that look is at least Synced old, and then looks at the streams again.
func (k *Keeper) round(ctx context.Context, seen **note) error {
	if *seen != nil {
		if time.Since((*seen).At) < k.Synced {
			return nil
		}
		if err := k.write(ctx, *seen); err != nil {
			return err
		}
		*seen = nil
	}
	n := &note{At: time.Now()}
	names, err := streams(ctx, k.JetStream)
	if err != nil {
		return err
	}
	if n.Streams, err = marksOf(ctx, k.JetStream, names); err != nil {
		return err
	}
	if k.Synced == 0 {
		return k.write(ctx, n)
	}
	*seen = n
	return nil
}
