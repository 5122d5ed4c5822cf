package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// moveKey is the key of the last claim by a move of shares. It lies in the bucket of the configuration. So one
// condition covers the claim and the configuration: nothing was written to the bucket since.
const moveKey = "move"

// Claim is the note that a move of shares leaves at a site.
type Claim struct {
	Who     string           `json:"who"`
	At      time.Time        `json:"at"`
	Account string           `json:"account"`
	Target  map[string]int64 `json:"target"`
}

// Command returns the command that makes the same move.
func (c *Claim) Command() string {
	words := []string{"weir shares", c.Account}
	for _, site := range slices.Sorted(maps.Keys(c.Target)) {
		words = append(words, fmt.Sprintf("%s=%d%%", site, c.Target[site]))
	}
	return strings.Join(words, " ")
}

// UnfinishedMove returns the last claim at a site if the site does not have the share that the claim names for it, and
// nothing has changed the share since the claim. Otherwise it returns nil. The move may still be running.
func UnfinishedMove(ctx context.Context, c *connect.Connection) (*Claim, error) {
	store, err := OpenConfigStore(ctx, c)
	if err != nil {
		return nil, err
	}
	entry, err := store.kv.Get(ctx, moveKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil //nolint:nilnil // no claim is no error
	} else if err != nil {
		return nil, c.Explain(fmt.Errorf("read the last move of shares: %w", err))
	}
	claim := &Claim{}
	if err := json.Unmarshal(entry.Value(), claim); err != nil {
		return nil, fmt.Errorf("the last move of shares (key %s in %s) cannot be read: %w", moveKey, connect.ConfigBucket, err)
	}
	entries, err := store.History(ctx)
	if err != nil {
		return nil, c.Explain(err)
	}
	newest, err := NewestReadable(entries)
	if err != nil || newest == nil {
		return nil, err
	}
	of, has := newest.Config.Account(claim.Account)
	if want, named := claim.Target[newest.Site]; !has || !named || want == of.Share {
		return nil, nil //nolint:nilnil // as above
	}
	for _, e := range slices.Backward(entries) {
		if v, err := ReadVersion(e); err == nil {
			if was, ok := v.Config.Account(claim.Account); ok && was.Share != of.Share {
				return nil, nil //nolint:nilnil // as above
			}
		}
		if e.Revision() < entry.Revision() {
			break // that one was in force when the site was claimed
		}
	}
	return claim, nil
}

// Claimed is a site's configuration as the move has found or stored it after its claim.
type Claimed struct {
	*Version

	claimed  uint64 // revision of the last write of the claim
	revision uint64 // revision of the last write to the bucket, if only this move has written since the claim
	note     []byte // the claim
	clock    siteClock
}

// siteClock relates the clock of a site to that of this process. The site's server stored a message at stored by its
// clock, which was between before and after by the clock of this process. The clock of this machine may be wrong by
// hours.
type siteClock struct{ stored, before, after time.Time }

// at returns the earliest and the latest time that the site's clock may show now. wall is now without its monotonic
// reading. The monotonic clock may stand still while the machine sleeps, and the wall clock may be set. So at considers
// how much time has passed by either clock.
func (c siteClock) at(now, wall time.Time) (earliest, latest time.Time) {
	least := min(now.Sub(c.after), wall.Sub(c.after.Round(0)))
	most := max(now.Sub(c.before), wall.Sub(c.before.Round(0)))
	return c.stored.Add(least), c.stored.Add(most)
}

// Until returns how long it takes until the site's clock shows the time that of returns. of gets the time that the
// site's clock shows now. That time is not known exactly, so the result may be too long, but is never too short.
func (v *Claimed) Until(of func(now time.Time) time.Time) time.Duration {
	now := time.Now()
	earliest, latest := v.clock.at(now, now.Round(0))
	return of(latest).Sub(earliest)
}

// ClaimShares stores the claim of a move of shares, and then reads the version in force. From then on no move with an
// earlier claim can change a share at the site.
func ClaimShares(ctx context.Context, c *connect.Connection, claim Claim) (*Claimed, error) {
	store, err := OpenConfigStore(ctx, c)
	if err != nil {
		return nil, err
	}
	note, before := marshal(claim), time.Now()
	revision, err := store.kv.Put(ctx, moveKey, note)
	if err != nil {
		return nil, c.Explain(fmt.Errorf("claim the shares: %w", err))
	}
	after := time.Now()
	stored, err := stream.NewestEntry(ctx, c.Conn, connect.ConfigBucket, moveKey)
	switch {
	case err != nil:
		return nil, c.Explain(err)
	case stored == nil || stored.Seq != revision:
		return nil, ErrLostRace
	}
	v, err := leaderVersion(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Claimed{v, revision, revision, note, siteClock{stored.Time, before, after}}, nil
}

// leaderVersion returns the newest version of the configuration, as the bucket's leader has it.
func leaderVersion(ctx context.Context, c *connect.Connection) (*Version, error) {
	newest, err := stream.NewestEntry(ctx, c.Conn, connect.ConfigBucket, currentKey)
	switch {
	case err != nil:
		return nil, c.Explain(err)
	case newest == nil || newest.Deleted():
		return nil, errNeverApplied
	}
	v := &Version{Number: newest.Seq}
	if err := json.Unmarshal(newest.Data, &v.StoredConfig); err != nil {
		return nil, fmt.Errorf("version %d of the configuration cannot be read: %w", v.Number, err)
	}
	return v, v.parse()
}

// Confirm fails with ErrLostRace if another move has claimed the site since, or if the share of the account in force is
// greater than the claimed one. Confirm writes the claim again, which succeeds only if it is still the last one.
// Reading the claim would not be enough: in a cluster that is cut in two, a former leader of the bucket may answer
// without the claims that the other nodes have stored. Confirm reads the share after the write: another move claims
// every site before it raises a share.
func (v *Claimed) Confirm(ctx context.Context, c *connect.Connection, account string) error {
	ack, err := c.JetStream.Publish(ctx, "$KV."+connect.ConfigBucket+"."+moveKey, v.note, jetstream.WithExpectLastSequencePerSubject(v.claimed))
	switch {
	case isWrongSequence(err):
		return ErrLostRace
	case err != nil:
		return c.Explain(fmt.Errorf("confirm the claim of the shares: %w", err))
	}
	if v.revision+1 == ack.Sequence { // else SetShare fails, because something else was written
		v.revision = ack.Sequence
	}
	v.claimed = ack.Sequence
	now, err := leaderVersion(ctx, c)
	if err != nil {
		return err
	}
	known, _ := v.Config.Account(account)
	if of, ok := now.Config.Account(account); !ok || of.Share > known.Share {
		return ErrLostRace
	}
	return nil
}

// SetShare stores a version that differs from the claimed one in one share. It fails with ErrLostRace if anything else
// was written to the bucket since the claim. from says why the share changes. SetShare writes to talk if the event of
// the change could not be stored.
func (v *Claimed) SetShare(ctx context.Context, c *connect.Connection, talk io.Writer, account string, percent int64, from string) (*Claimed, error) {
	next := &Version{StoredConfig: StoredConfig{
		YAML: v.YAML, From: from, Who: cli.User(), At: time.Now().UTC(), Changes: 1, Vendors: v.Vendors,
	}}
	v.Follow(&next.StoredConfig)
	next.TakenBack = v.TakenBack
	var err error
	if next.Config, err = v.Config.WithShare(account, percent); err != nil {
		return nil, err
	}
	next.Take(next.Config)
	ack, err := c.JetStream.Publish(ctx, "$KV."+connect.ConfigBucket+"."+currentKey, marshal(next.StoredConfig),
		jetstream.WithExpectLastSequence(v.revision), jetstream.WithExpectLastSequencePerSubject(v.Number))
	switch {
	case isWrongSequence(err):
		return nil, ErrLostRace
	case err != nil:
		return nil, c.Explain(fmt.Errorf("set the share: %w", err))
	}
	next.Number = ack.Sequence
	change := ConfigChange{Who: next.Who, From: from, OldVersion: v.Number, NewVersion: next.Number, Changes: 1}
	if err := change.Event().Publish(ctx, c.JetStream); err != nil {
		_, _ = fmt.Fprintf(talk, "weir: the share is stored, but the notification could not be: %v\n", err)
	}
	return &Claimed{next, v.claimed, ack.Sequence, v.note, v.clock}, nil
}

// Clearing says when the calls of a site are within its share, for AwaitClear.
type Clearing struct {
	Account string
	Version uint64        // that every replica must follow
	Share   int64         // the greatest share by which a replica may count, in percent
	Passes  time.Duration // how long calls may count that no store remembers
	// Gone returns how long it takes until no call that was made until now counts any more.
	Gone func() time.Duration
	Say  func(why string) // takes the reason why the site is not clear yet, also the same reason again
}

const (
	clearPoll = 500 * time.Millisecond
	// clearPatience is how long AwaitClear waits for a site that does not answer.
	clearPatience = 30 * time.Second
)

// AwaitClear blocks until every replica that may call follows the version, and the calls of the site are within its
// share of the account in every window that still sees calls. If no replica runs, or one does not count the account, it
// waits until no call from before counts any more. It fails if the site does not answer for half a minute.
func (k Clearing) AwaitClear(ctx context.Context, c *connect.Connection, talk io.Writer) error {
	if err := AwaitFollowed(ctx, c, talk, k.Version); err != nil {
		return err
	}
	m, err := awaitReplicas(ctx, c)
	if err != nil {
		return err
	}
	m.question, m.waits, m.again = marshal(useQuestion{k.Account}), useWaits, useWaits.first
	clear, gone := time.Time{}, time.Time{}
	answered := time.Now()
	for {
		replicas, counts, former, why := 0, 0, false, []string(nil)
		err := m.ask(ctx, configSubject, func(data []byte) (who replica) {
			var s ConfigState
			switch {
			case json.Unmarshal(data, &s) != nil:
				former = true // as far as is known
				why = append(why, "an answer cannot be read")
			case s.Version < k.Version:
				former = true
				why = append(why, fmt.Sprintf("replica %s does not follow version %d", cli.Visible(s.Instance), k.Version))
			case s.Busy[k.Account] != "":
				why = append(why, cli.Visible(s.Busy[k.Account]))
			}
			if share, ok := s.Shares[k.Account]; ok {
				counts++
				if share > k.Share {
					former = true
					why = append(why, fmt.Sprintf("replica %s still counts by %d%%: if no api of the account is configured any more, restart it",
						cli.Visible(s.Instance), share))
				}
			}
			replicas++
			return replica{s.Instance, s.Session}
		})
		now := time.Now()
		switch {
		case err != nil && (now.Sub(answered) > clearPatience || ctx.Err() != nil):
			return err
		case err != nil:
			why = append(why, err.Error())
		case !m.complete():
			answered, why = now, append(why, m.missing())
		case replicas > 0 && counts == replicas:
			answered, gone = now, time.Time{}
		case gone.IsZero():
			answered, gone = now, now.Add(k.Gone())
		default:
			answered = now
		}
		// Both waits begin when all replicas have answered and, for the first time, none of them counts by the former share.
		// A replica that still did so in its answer before may have called until now. If the site has lost the version, both
		// waits begin again.
		if former {
			clear, gone = time.Time{}, time.Time{}
		} else if clear.IsZero() && err == nil && m.complete() {
			clear = now.Add(k.Passes)
		}
		switch {
		case len(why) > 0:
		case !gone.IsZero() && now.Before(gone):
			why = append(why, "no weir there counts the account, so what it has used is not known: calls from before count until "+cli.ClockTime(gone))
		case gone.IsZero() && now.Before(clear):
			why = append(why, "calls by the former rates count until "+cli.ClockTime(clear))
		}
		if len(why) == 0 {
			return nil
		}
		slices.Sort(why)
		k.Say(strings.Join(slices.Compact(why), "; "))
		if !stream.Sleep(ctx, clearPoll) {
			return context.Cause(ctx)
		}
	}
}
