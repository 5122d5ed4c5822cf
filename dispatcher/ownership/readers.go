package ownership

import (
	"time"

	"weir/bucket/lease"
)

// Who takes a partition over goes by what the ledger says. A replica of an earlier version may read more out of a record than is meant now.
// So records say only what everybody reads as it is meant who may take over: their leases tell the format that they read.
//
// A view of the leases is old. What it lacks at most is what has come since this replica sent the newest of its own renewals that it has
// seen, since changes are seen in their order. That is as long ago as a right to call lasts at most, or the view is not gone by; and who
// comes takes nothing from an owner sooner than a term after.

// olderReader is a member that reads only an earlier format than this replica.
type olderReader struct {
	name string    // its instance; "" for none
	seen time.Time // when it was seen last
	here bool      // it was there then, or one was of which nothing is known but that its lease stands
}

// readers is what is known of those who may take a partition over.
type readers struct {
	older       olderReader
	from, until time.Time // when all are known to read what this replica reads
}

// all reports whether everybody who may take a partition over reads what this replica reads.
func (r *readers) all(now time.Time) bool {
	return r != nil && !r.older.here && !now.Before(r.from) && now.Before(r.until)
}

// reckonedWith is the instance that reads only an earlier format, "" for none.
func (r *readers) reckonedWith(now time.Time) string {
	if r == nil || !r.older.here && !now.Before(r.from) {
		return ""
	}
	return r.older.name
}

// view notes how new what was seen of the registry is.
func (o *state) view() {
	if self := o.members[o.self]; self != nil && self.revision >= o.last.Revision {
		o.viewed = o.last.Sent
	}
}

// readers looks who reads less than this replica.
func (o *state) readers(now time.Time) readers {
	o.older.here = false
	for session, m := range o.members {
		switch {
		case session == o.self, m.Ledger >= o.ledger:
		case m.Instance == "": // a lease that stands, and that the watch has not shown
			o.older.here = true
		case !o.older.here || o.older.seen != now || m.Instance < o.older.name:
			o.older = olderReader{name: m.Instance, seen: now, here: true}
		}
	}
	r := readers{older: o.older}
	if o.older.name != "" {
		r.from = o.older.seen.Add(o.olderFor)
	}
	if o.complete && !o.viewed.Before(o.shown) { // else what a watch does not show at its beginning may be missing
		r.until = o.viewed.Add(lease.Right)
	}
	return r
}

// noteReadersLocked keeps what is known of the readers for whoever asks.
func (m *Manager) noteReadersLocked() {
	r := m.o.readers(time.Now())
	m.older = r.older
	m.read.Store(&r)
}

// AllRead reports whether whoever may take a partition over is known to read the ledger as this replica does. It does not block.
func (m *Manager) AllRead() bool { return m.read.Load().all(time.Now()) }

// Older is the instance of a replica that reads only an earlier format of the ledger and may take a partition over, "" where none is known
// of. It does not block.
func (m *Manager) Older() string { return m.read.Load().reckonedWith(time.Now()) }

// tellOlder tells the log when there begins or ceases to be such a replica, and returns its instance. told is the last that was told of.
func (m *Manager) tellOlder(told string) string {
	is := m.Older()
	switch {
	case is == told:
	case is == "":
		m.opts.Log.Info("no replica of an earlier version is left: results and their records are stored together", "former", told)
	default:
		m.opts.Log.Info("a replica of an earlier version dispatches too: each result is stored before its record, which that version takes for its proof",
			"other", is)
	}
	return is
}
