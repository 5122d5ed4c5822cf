package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this test binary be a process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RECORDER_DIES_IN"); dir != "" {
		die(dir, os.Getenv("RECORDER_DIES_AT"))
	}
	os.Exit(m.Run())
}

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, dir string, size Size) *Recorder {
	t.Helper()
	r, err := Open(Options{Dir: dir, Size: size, Log: quiet})
	if errors.Is(err, ErrUnfit) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.file.Close() }) // it may be closed
	return r
}

var small = Size{Entries: 8, Chunks: 40}

func callOf(seq uint64) Call {
	return Call{Queue: QueueOf("WEIR_pay_3"), Seq: seq, Accepted: 1_700_000_000_000_000 + int64(seq), Number: 2, Epoch: 17, KeySum: 99}
}

func answerFor(seq uint64) *Answer {
	return &Answer{
		Verdict: 3, Sent: true, Fault: true, Status: 200 + int(seq), Started: time.Unix(0, 1_700_000_000_123_456_789), Ended: time.Unix(0, 1_700_000_001_000_000_001),
		After: time.Second, HoldWait: time.Minute, Billed: "yes", Reason: "rejected", Detail: "the api answered", HoldHeader: "retry-after",
		Mend: "mend it", ContentType: "application/json", Operation: "https://api.example.com/operations/1", Cancel: "https://api.example.com/c", Holds: true, Limits: 5, Taken: []int64{1, -2, 1 << 40}, Unsettled: 2,
		Body: bytes.Repeat([]byte{byte(seq), 'x', '\n'}, 3000),
	}
}

// stages are the stages that the calls of a killed process have reached.
var stages = []string{"prepared", "begun", "left", "answered", "settled"}

// die brings call n+1 to stage n, and another one to the stage asked for, and is killed then.
func die(dir, at string) {
	r, err := Open(Options{Dir: dir, Size: small, Log: quiet})
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	ids := os.Stdout
	for seq := uint64(1); int(seq) <= len(stages); seq++ {
		e := r.Prepare(callOf(seq), Entry{})
		_, _ = ids.WriteString(strconv.FormatUint(e.ID(), 10) + "\n")
		for i, stage := range stages[:seq] {
			switch i {
			case 1:
				e.Begin(time.UnixMicro(int64(1000*seq)), int64(5000*seq))
			case 2:
				e.Left()
			case 3:
				e.Answer(answerFor(seq))
			case 4:
				e.Settle()
			}
			if stage == at && int(seq) == i+1 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
}

// killed is what a process that is killed at a stage leaves: the ids of its calls.
func killed(t *testing.T, dir, at string) (ids []uint64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "RECORDER_DIES_IN="+dir, "RECORDER_DIES_AT="+at)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed: %v", err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestWhatAProcessNotedSurvivesItsDeath kills a process at each stage of a call, and checks that the next
// process knows how far each call had come.
func TestWhatAProcessNotedSurvivesItsDeath(t *testing.T) {
	open(t, t.TempDir(), small) // or there are no recorders here
	for n, at := range stages {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			ids := killed(t, dir, at)
			if len(ids) != n+1 {
				t.Fatalf("%d calls", len(ids))
			}
			r := open(t, dir, small)
			for i, id := range ids {
				seq, want := uint64(i+1), State(i+1)
				if want == Settled {
					want = Untold
				}
				f := r.Find(id, callOf(seq))
				if f.State != want {
					t.Errorf("call %d is %d, want %d", seq, f.State, want)
				}
				if began := want >= Begun; began != !f.Begun.IsZero() || began && (f.Begun.UnixMicro() != int64(1000*seq) || f.TAT != int64(5000*seq)) {
					t.Errorf("call %d began at %v, with %d", seq, f.Begun, f.TAT)
				}
				if want == Answered {
					sameAnswer(t, f.Answer, answerFor(seq))
				}
			}
		})
	}
}

func sameAnswer(t *testing.T, got, want *Answer) {
	t.Helper()
	if got == nil {
		t.Fatal("no answer")
	}
	if !bytes.Equal(got.Body, want.Body) || !slices.Equal(got.Taken, want.Taken) || !got.Started.Equal(want.Started) || !got.Ended.Equal(want.Ended) {
		t.Errorf("another answer: %d bytes, %v, %v to %v", len(got.Body), got.Taken, got.Started, got.Ended)
	}
	g, w := *got, *want
	g.Body, w.Body, g.Taken, w.Taken, g.Started, w.Started, g.Ended, w.Ended = nil, nil, nil, nil, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if len(g.Taken)+len(g.Body) != 0 || g.Detail != w.Detail || g.Verdict != w.Verdict || g.Status != w.Status || g.flags(false) != w.flags(false) ||
		g.After != w.After || g.HoldWait != w.HoldWait || g.Limits != w.Limits || g.Unsettled != w.Unsettled {
		t.Errorf("%+v, want %+v", g, w)
	}
	for i, text := range g.texts() {
		if *text != *w.texts()[i] {
			t.Errorf("text %d is %q, want %q", i, *text, *w.texts()[i])
		}
	}
}

// left makes a recorder note a prepared, a begun and an answered call, and end as a killed process does.
func left(t *testing.T) (r *Recorder, ids [3]uint64) {
	t.Helper()
	r = open(t, t.TempDir(), Size{Entries: 4, Chunks: 4})
	for i := range ids {
		e := r.Prepare(callOf(uint64(i+1)), Entry{})
		ids[i] = e.ID()
		if i > 0 {
			e.Begin(time.Now(), 1)
		}
		if i == 2 && !e.Answer(answerFor(3)) {
			t.Fatal("the answer was not kept whole")
		}
	}
	return r, ids
}

// die ends a recorder's hold on its file as a death does.
func (r *Recorder) die(t *testing.T) {
	t.Helper()
	if err := errors.Join(unmap(r.data), r.file.Close()); err != nil { // the mapping holds the lock as well
		t.Fatal(err)
	}
}

// TestNoTornByteIsBelieved changes every byte of a file in turn. A call must never wrongly count as not begun or
// as answered, and no answer may change.
func TestNoTornByteIsBelieved(t *testing.T) {
	r, ids := left(t)
	data := slices.Clone(r.data)
	size, why := readHeader(r.file, data, r.name, r.boot)
	if why != "" {
		t.Fatal(why)
	}
	want := readEntries(data, size, r.name)
	if want[ids[0]].state != Prepared || want[ids[1]].state != Begun || want[ids[2]].state != Answered || len(want) != 3 {
		t.Fatalf("%+v", want)
	}
	for at := range data {
		for _, flip := range []byte{1, 0xff} {
			data[at] ^= flip
			size, why := readHeader(r.file, data, r.name, r.boot)
			if why == "" {
				checkAgainst(t, at, readEntries(data, size, r.name), want)
			} else if at >= headerBytes {
				t.Fatalf("byte %d: %s", at, why)
			}
			data[at] ^= flip
		}
		if t.Failed() {
			return
		}
	}
	for at := range (headSum + 1) * 8 { // every byte of the header that says something
		data[at] ^= 4
		if _, why := readHeader(r.file, data, r.name, r.boot); why == "" {
			t.Errorf("a header whose byte %d is another is believed", at)
		}
		data[at] ^= 4
	}
}

func checkAgainst(t *testing.T, at int, got, want map[uint64]leftEntry) {
	for id, e := range got {
		w, ok := want[id]
		if (e.state == Prepared || e.state == Answered) && (!ok || w.state != e.state || !slices.Equal(e.words, w.words)) {
			t.Errorf("byte %d: call %d is believed to be %d, and was %d", at, id, e.state, w.state)
		}
		if e.state == Answered {
			sameAnswer(t, e.answer, w.answer)
		}
	}
}

// TestOnlyTheCallItselfIsFound checks that nothing is known of a call if any part of its name differs.
func TestOnlyTheCallItselfIsFound(t *testing.T) {
	r, ids := left(t)
	r.die(t)
	next := open(t, r.dir, small)
	c := callOf(1)
	if next.Find(ids[0], c).State != Prepared {
		t.Fatal("the call itself is not found")
	}
	for what, other := range map[string]func(c *Call){
		"api":    func(c *Call) { c.Queue = QueueOf("WEIR_other_3") },
		"stream": func(c *Call) { c.Queue = QueueOf("WEIR_pay_4") }, "seq": func(c *Call) { c.Seq++ }, "time": func(c *Call) { c.Accepted++ },
		"number": func(c *Call) { c.Number++ }, "epoch": func(c *Call) { c.Epoch++ }, "key": func(c *Call) { c.KeySum++ },
	} {
		c := callOf(1)
		other(&c)
		if f := next.Find(ids[0], c); f.State != Untold {
			t.Errorf("with another %s it is %d", what, f.State)
		}
	}
	if next.Find(ids[1], c).State != Untold || next.Find(0, c).State != Untold {
		t.Error("a call is found under another number")
	}
}

// TestTwoEntriesOfOneNumber checks that if two entries of a file have one number, neither is believed: one may
// be outdated.
func TestTwoEntriesOfOneNumber(t *testing.T) {
	r := open(t, t.TempDir(), small)
	begun := r.Prepare(callOf(1), Entry{})
	r.Adopt(begun.ID(), callOf(1)) // says that the call has not begun
	begun.Begin(time.Now(), 5000)
	r.die(t)
	if f := open(t, r.dir, small).Find(begun.ID(), callOf(1)); f.State != Untold {
		t.Errorf("it is known to be %d", f.State)
	}
}

// TestEntriesAreNotLostFromSight checks that a parked entry goes back to its call, or to another call if there
// is no other room. An entry of a call under way is never given to another call.
func TestEntriesAreNotLostFromSight(t *testing.T) {
	r := open(t, t.TempDir(), small)
	var all []Entry
	for seq := range uint64(small.Entries) {
		all = append(all, r.Prepare(callOf(seq+1), Entry{}))
	}
	if e := r.Prepare(callOf(100), Entry{}); e != (Entry{}) || r.Missed() != 1 {
		t.Fatalf("a call got an entry where there is none: %+v", e)
	}
	all[3].LetGo()
	all[5].LetGo()
	all[5].LetGo()
	if again := r.Prepare(callOf(4), all[3]); again != all[3] {
		t.Error("a call lost its entry")
	}
	other := r.Prepare(callOf(100), Entry{})
	if other.slot != all[5].slot || other.ID() == all[5].ID() {
		t.Errorf("%+v, where only %+v is free", other, all[5])
	}
	if all[5].Begin(time.Now(), 1) {
		t.Error("a call may begin whose entry is another's")
	}
	if e := r.Prepare(callOf(6), all[5]); e != (Entry{}) {
		t.Error("a call has another's entry")
	}
	all[5].LetGo()
	all[5].Settle()
	if !other.Begin(time.Now(), 1) || !other.Answer(answerFor(1)) {
		t.Error("the new owner is hindered")
	}
	other.Settle()
	if len(r.free) != 1 || len(r.chunks) != small.Chunks || r.parked.size != 0 {
		t.Errorf("%d free, %d chunks, %d parked", len(r.free), len(r.chunks), r.parked.size)
	}
	if e := r.Prepare(callOf(4), all[3]); e != all[3] {
		t.Error("an entry that is in use was given away")
	}
	if e := r.Prepare(Call{Seq: 4, Number: 3}, all[3]); e == all[3] {
		t.Error("the next call of a job has the entry of the one before")
	}
}

// TestAnUnsentCallGivesItsChunksBack checks that a call that failed before its first byte keeps no chunk of its outcome.
func TestAnUnsentCallGivesItsChunksBack(t *testing.T) {
	r := open(t, t.TempDir(), small)
	e := r.Prepare(callOf(1), Entry{})
	e.Answer(answerFor(1))
	e.LetGo()
	if len(r.chunks) != small.Chunks || len(r.free) != small.Entries || r.parked.size != 0 {
		t.Errorf("%d chunks and %d entries are free, %d are parked", len(r.chunks), len(r.free), r.parked.size)
	}
}

// TestAnAnswerStaysAnswered checks that an answer that comes before the report that its request left stays noted.
func TestAnAnswerStaysAnswered(t *testing.T) {
	r := open(t, t.TempDir(), small)
	e := r.Prepare(callOf(1), Entry{})
	e.Begin(time.Now(), 1)
	e.Answer(answerFor(1))
	e.Left()
	r.die(t)
	f := open(t, r.dir, small).Find(e.ID(), callOf(1))
	if f.State != Answered {
		t.Fatalf("the call is %d, want %d", f.State, Answered)
	}
	sameAnswer(t, f.Answer, answerFor(1))
}

// TestBodiesAreCut checks that the beginning of an answer that is too long is kept, and marked as cut.
func TestBodiesAreCut(t *testing.T) {
	for _, c := range []struct{ chunks, body, kept int }{
		{40, MaxBody * 2, -1}, {3, 20_000, -1}, {40, 60_000, 60_000}, {40, 0, 0},
	} {
		r := open(t, t.TempDir(), Size{Entries: 4, Chunks: c.chunks})
		e := r.Prepare(callOf(1), Entry{})
		e.Begin(time.Now(), 1)
		a := answerFor(1)
		a.Body = bytes.Repeat([]byte("0123456789"), c.body/10)
		whole := e.Answer(a)
		r.die(t)
		got := open(t, r.dir, small).Find(e.ID(), callOf(1)).Answer
		if got == nil || whole != (c.kept >= 0) || got.More != !whole || !bytes.HasPrefix(a.Body, got.Body) || c.kept >= 0 && len(got.Body) != c.kept {
			t.Errorf("%+v: whole %v, got %+v", c, whole, got)
		}
	}
	r := open(t, t.TempDir(), Size{Entries: 4, Chunks: 1})
	e := r.Prepare(callOf(1), Entry{})
	e.Begin(time.Now(), 1)
	if e.Answer(&Answer{Detail: strings.Repeat("x", 9000), Mend: strings.Repeat("z", 9000), Reason: strings.Repeat("r", 9000), ContentType: strings.Repeat("c", 9000)}) {
		t.Error("there was no room for it")
	}
	if len(r.chunks) != 1 {
		t.Error("a chunk is gone")
	}
}

// TestClose checks that a process that ends in order leaves a file only if something is under way.
func TestClose(t *testing.T) {
	for _, busy := range []bool{false, true} {
		r := open(t, t.TempDir(), small)
		e := r.Prepare(callOf(1), Entry{})
		r.Prepare(callOf(2), Entry{}).LetGo()
		if !busy {
			e.Settle()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(r.path); busy != (err == nil) {
			t.Errorf("busy %v: %v", busy, err)
		}
	}
}

// TestWhatIsAdoptedIsKnownWithoutItsFile checks that the file of the process that adopted a call says that it
// has not begun, until it begins under another intent.
func TestWhatIsAdoptedIsKnownWithoutItsFile(t *testing.T) {
	for _, began := range []bool{false, true} {
		r, ids := left(t)
		r.die(t)
		second := open(t, r.dir, small)
		adopted := second.Adopt(ids[0], callOf(1))
		if began {
			adopted.Settle()
		} else {
			adopted.LetGo()
		}
		second.Retire(0)
		second.die(t)
		want := Prepared
		if began {
			want = Untold
		}
		if f := open(t, r.dir, small).Find(ids[0], callOf(1)); f.State != want {
			t.Errorf("began %v: it is %d", began, f.State)
		}
	}
}
