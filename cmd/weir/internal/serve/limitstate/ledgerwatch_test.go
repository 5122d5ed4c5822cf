package limitstate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/serve/clock"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"

	"github.com/nats-io/nats.go/jetstream"
)

// TestLedgerLosses checks that records missing from the ledger are found. Records that were dropped by age or because
// the stream was full are no loss.
func TestLedgerLosses(t *testing.T) {
	born := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	now := born.Add(10 * 24 * time.Hour)
	was := ledgerNote{Born: born, First: 5, FirstAt: born, Last: 40, Deleted: 2}
	for name, c := range map[string]struct {
		state jetstream.StreamState
		made  time.Time
		age   time.Duration
		most  int64
		want  string
		n     uint64
	}{
		"as it was":           {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 40, NumDeleted: 2}},
		"longer":              {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 90, NumDeleted: 2}},
		"its end":             {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 8, NumDeleted: 0}, want: "end", n: 32},
		"its last record":     {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 39, NumDeleted: 2}, want: "end", n: 1},
		"its first record":    {state: jetstream.StreamState{FirstSeq: 6, LastSeq: 40, NumDeleted: 2}, want: "beginning", n: 1},
		"one between":         {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 40, NumDeleted: 3}, want: "between", n: 1},
		"deleted between":     {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 41, NumDeleted: 17}, want: "between", n: 15},
		"deleted first":       {state: jetstream.StreamState{FirstSeq: 20, LastSeq: 41}, want: "beginning", n: 15},
		"gone with their age": {state: jetstream.StreamState{FirstSeq: 20, LastSeq: 41}, age: 9 * 24 * time.Hour},
		"gone for room":       {state: jetstream.StreamState{FirstSeq: 20, LastSeq: 41, Bytes: 900}, most: 1000},
		"made anew":           {state: jetstream.StreamState{FirstSeq: 1, LastSeq: 90}, made: now, want: "all", n: 36},
		"made anew behind":    {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 90, FirstTime: now}, made: now, want: "all", n: 36},
		"copied elsewhere":    {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 40, FirstTime: born, NumDeleted: 2}, made: now},
		"copied cut short":    {state: jetstream.StreamState{FirstSeq: 5, LastSeq: 30, FirstTime: born}, made: now, want: "all", n: 36},
	} {
		info := &jetstream.StreamInfo{State: c.state, Created: born, Config: jetstream.StreamConfig{MaxAge: 62 * 24 * time.Hour, MaxBytes: c.most}}
		if !c.made.IsZero() {
			info.Created = c.made
		}
		if c.age > 0 {
			info.Config.MaxAge = c.age
		}
		next, losses := was.compare(info, now)
		switch {
		case c.want == "" && len(losses) != 0:
			t.Errorf("%s: %+v", name, losses)
		case c.want != "" && (len(losses) != 1 || losses[0].Kind != c.want || losses[0].Records != c.n || next.Lost != 1):
			t.Errorf("%s: %+v, want %d of kind %s", name, losses, c.n, c.want)
		}
		if _, again := next.compare(info, now); len(again) != 0 {
			t.Errorf("%s is told twice", name)
		}
	}
}

// TestMissingRecordsCountTheMost deletes records at the ledger's beginning, end or middle while no weir runs. It checks
// that the limits then count the bound of the last checkpoint, and not the rest of the ledger.
func TestMissingRecordsCountTheMost(t *testing.T) {
	for _, noted := range []bool{true, false} {
		for name, gone := range map[string][2]uint64{"beginning": {1, 15}, "between": {10, 24}} {
			r := newAccountRig(t)
			watch := func() {
				var err error
				if r.o.Ledger, err = OpenLedgerWatch(t.Context(), r.o); err != nil {
					t.Fatal(err)
				}
			}
			watch()
			r.live(0)
			r.plant(40, time.Now().Add(-time.Minute), 1)
			if noted {
				if err := r.o.Ledger.look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			calls, err := r.o.JetStream.Stream(t.Context(), ledger.CallsStream)
			if err != nil {
				t.Fatal(err)
			}
			for seq := gone[0]; seq <= gone[1]; seq++ {
				if err := calls.DeleteMsg(t.Context(), seq); err != nil {
					t.Fatal(err)
				}
			}
			r.o.Clock = clock.New()
			watch()
			if lost := r.o.Ledger.Problem() != ""; lost != noted && name == "beginning" || noted && !lost {
				t.Errorf("%s, noted %v: told %q", name, noted, r.o.Ledger.Problem())
			}
			r.live(42)
			r.catchUp()
			if used := r.store.Levels()[0]; used.Used != 42 || used.Bound {
				t.Errorf("%s, noted %v: %d count as used, want the 42 of the checkpoint", name, noted, used.Used)
			}
		}
	}
}

// TestLossesBesideAReplicaThatLags checks that a start knows the stored extent of the ledger, although a replica that
// lags has none.
func TestLossesBesideAReplicaThatLags(t *testing.T) {
	o := serverForLimits(t)
	if _, err := o.Control.Put(t.Context(), ledgerKey, []byte(`{"last":7}`)); err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, o.JetStream, "KV_"+o.Control.Bucket())
	if note, damages, err := (&LedgerWatch{o: o}).readLosses(t.Context()); note.Last != 7 || len(damages) > 0 || err != nil {
		t.Errorf("%+v, %v, %v", note, damages, err)
	}
}

// TestDamageIsTold checks that a record that an account cannot read or find is a loss of the ledger like any other: the
// status, verify and spend report it. It is reported once, even if another account or another start finds it again.
func TestDamageIsTold(t *testing.T) {
	for name, spoil := range map[string]func(r *accountRig){
		"unreadable": func(r *accountRig) {
			if _, err := r.o.JetStream.Publish(t.Context(), "weir.calls.acc.k", []byte("{")); err != nil {
				t.Fatal(err)
			}
		},
		"missing": func(r *accountRig) {
			r.plant(1, time.Now(), 1)
			calls, err := r.o.JetStream.Stream(t.Context(), ledger.CallsStream)
			if err == nil {
				err = calls.DeleteMsg(t.Context(), 6)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAccountRig(t)
			var err error
			if r.o.Ledger, err = OpenLedgerWatch(t.Context(), r.o); err != nil {
				t.Fatal(err)
			}
			r.live(0)
			r.plant(5, time.Now(), 1)
			spoil(r)
			r.plant(1, time.Now(), 1)
			r.live(100) // the watch has not looked meanwhile
			r.catchUp()
			r.counts("day", 100)
			if got := r.o.Ledger.Problem(); !strings.HasPrefix(got, "record 6 of the ledger") {
				t.Errorf("the status tells %q", got)
			}
			if err := r.o.Ledger.damaged(t.Context(), &ledger.Damage{Seq: 6}); err != nil {
				t.Fatal(err)
			}
			again, err := OpenLedgerWatch(t.Context(), r.o)
			if err != nil {
				t.Fatal(err)
			}
			if again.Problem() == "" {
				t.Error("a start forgets it")
			}
			losses, err := LedgerLosses(t.Context(), r.o.JetStream, r.o.Control.Bucket(), time.Time{})
			losses = slices.DeleteFunc(losses, func(l LedgerLoss) bool { return l.Kind != damaged })
			if err != nil || len(losses) != 1 || losses[0].From != 6 || losses[0].Records != 1 {
				t.Errorf("told %+v: %v", losses, err)
			}
		})
	}
}

// TestEndLostAfterTheNote: a start reports records that were stored after the ledger's last note and lost with a kill.
// The flight recorder knows of them. They are reported once. The limits then count as many calls as may have been made.
func TestEndLostAfterTheNote(t *testing.T) {
	for _, stored := range []uint64{5, 9} {
		r := newAccountRig(t)
		dir := t.TempDir()
		live := func() {
			t.Helper()
			var err error
			r.o.Recorder, err = recorder.Open(recorder.Options{Dir: dir, Size: recorder.Size{Entries: 8, Chunks: 8}, Log: r.o.Log})
			if errors.Is(err, recorder.ErrUnfit) && os.Getenv("CI") == "" {
				t.Skip(err)
			} else if err == nil {
				r.o.Ledger, err = OpenLedgerWatch(t.Context(), r.o)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		die := func() { // with a call under way, so that the recorder's file is kept
			t.Helper()
			r.o.Recorder.Prepare(recorder.Call{Seq: 1}, recorder.Entry{})
			if err := r.o.Recorder.Close(); err != nil {
				t.Fatal(err)
			}
		}
		live()
		r.live(0)
		r.plant(5, time.Now(), 1)
		r.o.Recorder.Recorded(stored)
		die()

		live()
		lost := uint64(0)
		for _, l := range r.o.Ledger.note.Losses {
			lost += l.Records
		}
		if told := r.o.Ledger.Problem() != ""; lost != stored-5 || told != (lost > 0) {
			t.Errorf("%d records are told as lost of %d, want %d: %q", lost, stored, stored-5, r.o.Ledger.Problem())
		}
		r.live(11)
		r.catchUp()
		if stored > 5 {
			r.counts("day", 11)
		} else {
			r.counts("day", 5)
		}
		die()
		live() // the files of both processes are still there
		if losses := r.o.Ledger.note.Lost; losses != 0 && stored == 5 || losses != 1 && stored > 5 {
			t.Errorf("%d losses after another start", losses)
		}
		die()
	}
}
