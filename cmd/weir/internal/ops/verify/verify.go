package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/terminal"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/ledger"
)

// Options say which calls to verify, and where to write the findings.
type Options struct {
	API   string    // only calls of this api; "": of all
	Since time.Time // only calls from this time on; zero: since the last change of each api's limits
	As    cli.Format
	Out   io.Writer // for the findings
	Talk  io.Writer // for everything else
	Most  Bounds
}

// Bounds limit the memory of a verification. 0 means that only the bounds of replay apply.
type Bounds struct {
	Calls int // the most calls that are read
	Keys  int // the most keys of one api, 500 bytes each
	Jobs  int // the most jobs of one api that are remembered, some 130 bytes each; second calls are found among these
}

// ErrTooMuch reports that Bounds were exceeded.
var ErrTooMuch = errors.New("too much to verify at once")

// Findings are the results for all apis.
type Findings struct {
	Reports []Report `json:"reports"` // of each api with calls, by name
	// Strangers counts calls of apis that are not configured any more, and Unreadable the records that cannot be read.
	// None of them was checked.
	Strangers  int `json:"strangers,omitempty"`
	Unreadable int `json:"unreadable,omitempty"`
	// Gone are parts of the ledger that were lost: none of their calls was checked.
	Gone []limitstate.LedgerLoss `json:"gone,omitempty"`
}

// Find is Run without output: it returns the findings. It fails only if no verdict is possible, and with ErrTooMuch if
// o.Most is exceeded.
func Find(ctx context.Context, c *connect.Connection, o Options) (*Findings, error) {
	replays, err := newReplays(ctx, c, &o)
	if err != nil {
		return nil, err
	}
	found := &Findings{Reports: []Report{}}
	if found.Strangers, found.Unreadable, err = readLedger(ctx, c, &o, replays); err != nil {
		return nil, err
	}
	if found.Gone, err = limitstate.LedgerLosses(ctx, c.JetStream, connect.ControlBucket, o.Since); err != nil {
		return nil, c.Explain(err)
	}
	for _, name := range slices.Sorted(maps.Keys(replays)) {
		if v := replays[name].verdict(); v.Calls+v.Unplaced+v.Unsent > 0 {
			found.Reports = append(found.Reports, v)
		}
	}
	return found, nil
}

// Run checks the recorded calls against the limits of the running configuration, and writes the findings. It blocks
// until it has read the ledger. It fails if a limit was exceeded, if a job was called twice without permission, or if
// there are no calls.
func Run(ctx context.Context, c *connect.Connection, o Options) error {
	replays, err := newReplays(ctx, c, &o)
	if err != nil {
		return err
	}
	strangers, unreadable, err := readLedger(ctx, c, &o, replays)
	if err != nil {
		return err
	}
	if strangers > 0 {
		_, _ = fmt.Fprintf(o.Talk, "weir: %s of APIs that are no longer configured: not checked\n", cli.Count(strangers, "call"))
	}
	if unreadable > 0 {
		_, _ = fmt.Fprintf(o.Talk, "weir: %s that cannot be read: not checked\n", cli.Count(unreadable, "record"))
	}
	gone, err := limitstate.LedgerLosses(ctx, c.JetStream, connect.ControlBucket, o.Since)
	if err != nil {
		return c.Explain(err)
	}
	for i := range gone {
		_, _ = fmt.Fprintln(o.Talk, "weir:", gone[i].Why())
	}
	err = tellVerdicts(o, replays)
	if err == nil && len(gone)+unreadable > 0 {
		return cli.NotFound(errors.New("the ledger is incomplete: it does not prove that the limits were kept"))
	}
	return err
}

// recordsShown is how many records are read between two displays of the progress.
const recordsShown = 10_000

// newReplays creates a replay for each api, or only for the requested api. A replay begins at o.Since. If that is zero,
// it begins when the api's limits came into force.
func newReplays(ctx context.Context, c *connect.Connection, o *Options) (map[string]*replay, error) {
	only, from := o.API, o.Since
	current, err := admin.CurrentVersion(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, ok := current.Config.API(only); only != "" && !ok {
		return nil, admin.NoAPI(only, current.Config)
	}
	entries, err := admin.ConfigHistory(ctx, c)
	if err != nil {
		return nil, err
	}
	var versions []*admin.Version
	for _, entry := range slices.Backward(entries) {
		if v, err := admin.ReadVersion(entry); err == nil {
			versions = append(versions, v)
		}
	}
	replays := map[string]*replay{}
	for i := range current.Config.APIs {
		a := &current.Config.APIs[i]
		if only != "" && a.Name != only {
			continue
		}
		if !from.IsZero() {
			replays[a.Name] = newReplay(a, from, o.Most)
			continue
		}
		was, changed := inForceSince(versions, a.Name)
		r := newReplay(a, changed, o.Most)
		r.changed, r.account = changed, bucket.NewAccount(a.Rules)
		if was != nil {
			r.former = newFormer(was, a, changed)
			r.limit()
		}
		replays[a.Name] = r
	}
	return replays, nil
}

// inForceSince returns the former configuration of an api, and when the present configuration of the api came into
// force. Both are zero if there was no former one. versions begin with the newest.
func inForceSince(versions []*admin.Version, api string) (was *config.API, since time.Time) {
	for i, v := range versions[1:] {
		if config.Concerns(v.Config.Diff(versions[0].Config), api) {
			was, existed := v.Config.API(api)
			if !existed {
				return nil, time.Time{}
			}
			return was, versions[i].At
		}
	}
	return nil, time.Time{}
}

// besides returns the replays of apis with an account. The shared limits of these replays also count calls of other
// apis.
func besides(replays map[string]*replay) (of []*replay) {
	for _, r := range replays {
		if r.rules.In != nil {
			of = append(of, r)
		}
	}
	return of
}

// readLedger passes the ledger's records to the replays. It returns the number of calls of apis without a replay, and
// the number of unreadable records.
func readLedger(ctx context.Context, c *connect.Connection, o *Options, replays map[string]*replay) (strangers, unreadable int, err error) {
	talk, shown, others := o.Talk, false, besides(replays)
	only := o.API
	if len(others) > 0 {
		only = "" // limits of an account also count calls of other apis
	}
	unreadable, err = ledger.Read(ctx, c.JetStream, ledger.Filter{API: only, Since: o.Since},
		func(call *ledger.Record, read, of uint64) error {
			if o.Most.Calls > 0 && max(read, of) > uint64(o.Most.Calls) {
				return fmt.Errorf("%w: %d calls are more than %d", ErrTooMuch, max(read, of), o.Most.Calls)
			}
			if read%recordsShown == 0 && terminal.Watched(talk) {
				shown = true
				_, _ = fmt.Fprintf(talk, "\r%d of %d calls", read, of)
			}
			for _, other := range others {
				if other.isBeside(call) {
					other.beside(call)
				}
			}
			r := replays[call.API]
			if r == nil {
				if o.API == "" {
					strangers++
				}
				return nil
			}
			r.take(call)
			return r.within()
		})
	if shown {
		_, _ = fmt.Fprint(talk, "\r\x1b[K")
	}
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		return 0, 0, cli.NotFound(err)
	case errors.Is(err, ErrTooMuch):
		return 0, 0, err
	case err != nil:
		return 0, 0, c.Explain(err)
	}
	for _, r := range replays {
		r.check(math.MaxInt64)
		if err := r.within(); err != nil {
			return 0, 0, err
		}
	}
	return strangers, unreadable, nil
}
