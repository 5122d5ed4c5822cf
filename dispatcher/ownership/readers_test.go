package ownership

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestWhoReadsWhat: records say what an earlier version does not read only while this replica's view of the others is new, shows nobody of
// such a version, and has shown nobody for as long as one may come back.
func TestWhoReadsWhat(t *testing.T) {
	t.Parallel()
	const olderFor = time.Minute
	began := time.Unix(1_700_000_000, 0)
	member := func(session string, revision uint64, ledger int) lease.Sighting {
		return lease.Sighting{Session: session, Revision: revision, Member: &lease.Member{Instance: "weir-" + session, Ledger: ledger}}
	}
	ended := func(session string, revision uint64) lease.Sighting {
		return lease.Sighting{Session: session, Revision: revision}
	}
	shown := lease.Sighting{}
	renewed := func(revision uint64, at time.Duration) func(*state, time.Time) {
		return func(o *state, now time.Time) {
			o.renew(lease.Renewal{Revision: revision, Sent: began.Add(at)}, now)
		}
	}
	sees := func(all ...lease.Sighting) func(*state, time.Time) {
		return func(o *state, now time.Time) {
			for _, s := range all {
				o.see(s, now)
			}
		}
	}
	type step struct {
		at    time.Duration
		do    func(*state, time.Time)
		all   bool
		older string
	}
	nothing := func(*state, time.Time) {}
	// new is a replica that has just seen its own second renewal, and begins at its third second.
	alone := []step{
		{at: 0, do: sees(member("me", 10, 1), shown)}, // what a watch does not show at its beginning may be missing
		{at: time.Second, do: renewed(11, time.Second)},
		{at: time.Second, do: sees(member("me", 11, 1)), all: true},
	}
	for name, steps := range map[string][]step{
		"nobody else": {
			{at: 3 * time.Second, do: nothing, all: true},
			{at: 4 * time.Second, do: nothing}, // the view is old
			{at: 4 * time.Second, do: renewed(12, 4*time.Second)},
			{at: 5 * time.Second, do: sees(member("me", 12, 1)), all: true},
			{at: 6 * time.Second, do: nothing, all: true},
			{at: 7 * time.Second, do: nothing}, // it counts from when the renewal was sent
		},
		"a renewal is seen before it is told": {
			{at: 2 * time.Second, do: sees(member("me", 12, 1)), all: true},
			{at: 3 * time.Second, do: renewed(12, 2*time.Second), all: true},
			{at: 4 * time.Second, do: nothing, all: true},
			{at: 5 * time.Second, do: nothing},
		},
		"one that reads as much, or more": {
			{at: 2 * time.Second, do: sees(member("same", 12, 1), member("later", 13, 2)), all: true},
		},
		"one of an earlier version comes and goes": {
			{at: 2 * time.Second, do: sees(member("old", 12, 0)), older: "weir-old"},
			{at: 3 * time.Second, do: renewed(13, 3*time.Second), older: "weir-old"},
			{at: 3 * time.Second, do: sees(member("me", 13, 1), ended("old", 14)), older: "weir-old"},
			{at: 61 * time.Second, do: renewed(15, 61*time.Second), older: "weir-old"},
			{at: 61 * time.Second, do: sees(member("me", 15, 1)), older: "weir-old"},
			{at: 63 * time.Second, do: nothing, all: true}, // a minute after it was seen for the last time
		},
		"one of an earlier version that gives up what it has": {
			{at: 2 * time.Second, do: sees(lease.Sighting{Session: "old", Revision: 12, Member: &lease.Member{Instance: "weir-old", Leaving: true}}), older: "weir-old"},
		},
		"one of an earlier version that a new watch does not show": {
			{at: 2 * time.Second, do: sees(member("old", 12, 0)), older: "weir-old"},
			{at: 3 * time.Second, do: func(o *state, now time.Time) {
				o.watchBegins()
				sees(member("me", 11, 1), shown)(o, now)
			}, older: "weir-old"},
		},
		"of two the first by name is told": {
			{at: 2 * time.Second, do: sees(member("b", 12, 0), member("a", 13, 0)), older: "weir-a"},
		},
		"a watch that begins anew": {
			{at: 2 * time.Second, do: func(o *state, _ time.Time) { o.watchBegins() }},
			{at: 2 * time.Second, do: sees(member("me", 11, 1), shown)},
			{at: 3 * time.Second, do: renewed(12, 3*time.Second)},
			{at: 3 * time.Second, do: sees(member("me", 12, 1)), all: true},
		},
		"a lease that stands and that the watch has not shown": {
			{at: 2 * time.Second, do: func(o *state, now time.Time) { o.expelled("unseen", false, 9, now) }},
			{at: 2 * time.Second, do: sees(member("unseen", 12, 1)), all: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newState("me", "weir-me", began)
			o.ledger, o.olderFor = 1, olderFor
			for i, s := range append(alone[:len(alone):len(alone)], steps...) {
				now := began.Add(s.at)
				s.do(o, now)
				r := o.readers(now)
				if got := r.all(now); got != s.all {
					t.Errorf("step %d, after %s: all read %v, want %v", i, s.at, got, s.all)
				}
				if got := r.reckonedWith(now); got != s.older {
					t.Errorf("step %d, after %s: reckons with %q, want %q", i, s.at, got, s.older)
				}
			}
		})
	}
	if (*readers)(nil).all(began) || (*readers)(nil).reckonedWith(began) != "" {
		t.Error("who has no lease knows of others")
	}
}

// idle is a Host of which nothing is asked.
type idle struct{}

func (idle) Partitions() map[string]int                                             { return map[string]int{"a": 4} }
func (idle) Rules() map[string]bucket.Rules                                         { return nil }
func (idle) Open(context.Context, context.Context, lease.PartitionID, Tenure) error { return nil }
func (idle) Close(context.Context, lease.PartitionID) error                         { return nil }
func (idle) Lose(lease.PartitionID)                                                 {}
func (idle) LoseAll(*lease.Membership)                                              {}
func (idle) Contact(func(api string) Others) (c Contact)                            { return c }

// TestAnOlderReplicaComesAndGoes: of two replicas on one server one reads an earlier format. The other one knows as long as it is there, and
// for a while after, and goes on as before then. The older one minds nothing.
func TestAnOlderReplicaComesAndGoes(t *testing.T) {
	t.Parallel()
	registry, err := lease.OpenRegistry(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string, ledger int) (m *Manager, stop func()) {
		m = NewManager(ManagerOptions{
			Registry: registry, Instance: name, Ledger: ledger, OlderFor: 200 * time.Millisecond, Host: idle{}, Log: slog.New(slog.DiscardHandler),
			MayBegin: func(context.Context) error { return nil },
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx, context.WithoutCancel(ctx)) }()
		return m, func() {
			cancel()
			if err := await.Receive(t, "the end of "+name, ended); err != nil {
				t.Error(err)
			}
			m.End(context.WithoutCancel(t.Context()))
		}
	}
	m, stop := start("new", 1)
	defer stop()
	await.Until(t, "nobody else to be seen", m.AllRead)
	old, stopOld := start("old", 0)
	await.Until(t, "the older one to be seen", func() bool { return m.Older() == "old" })
	if m.AllRead() {
		t.Error("all read what the older one does not")
	}
	await.Until(t, "the older one to take its part", func() bool { return old.Unready() == "" })
	await.Until(t, "the older one, which reads all that it writes itself", old.AllRead)
	stopOld()
	await.Until(t, "the older one to have gone", m.AllRead)
	if m.Older() != "" {
		t.Errorf("%s is reckoned with", m.Older())
	}
}
