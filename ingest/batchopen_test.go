package ingest

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestHeadersOfBatchesAreBounded checks that the time for the headers of a job does not grow with the square of how
// often one repeats, and that headers which are too large are not read to their end.
func TestHeadersOfBatchesAreBounded(t *testing.T) {
	most := []byte(strings.Repeat("a:\r\n", maxHeaderBytes/4))
	var h nats.Header
	var err error
	if n := testing.AllocsPerRun(1, func() { h, err = parseHeader(most) }); n > 100 || err != nil || len(h["a"]) != maxHeaderBytes/4 {
		t.Errorf("%d values, %v allocations, error %v", len(h["a"]), n, err)
	}
	h, err = parseHeader([]byte("Nats-Msg-Id: 1\r\n" + strings.Repeat("b: 1\r\n", 100_000)))
	if err == nil || err.Error() != "the headers have 600016 bytes, at most 32768 are allowed" {
		t.Error(err)
	}
	if h.Get("Nats-Msg-Id") != "1" || len(h["b"]) != (maxHeaderBytes-16)/6 {
		t.Errorf("id %q, %d other values", h.Get("Nats-Msg-Id"), len(h["b"]))
	}
}

// TestBatchIsAnsweredInTime checks that a job without an answer does not withhold the answers to the others, and that a
// batch is answered once.
func TestBatchIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, sent := time.Now(), make(chan string, 2)
		send := func(answer []byte) { sent <- string(answer) }
		b := newBatch(&endpoint{}, start, 3, 1000, send)
		b.hear(1, Answer{Data: []byte(`{"seq":1}`)})
		if got, took := await.Receive(t, "the answer", sent), time.Since(start); got != `{"jobs":[null,{"seq":1},null]}` || took != answerBatchWithin {
			t.Errorf("after %v: %s", took, got)
		}
		b.hear(0, Answer{Data: []byte(`{"seq":2}`)})
		b.hear(2, Answer{})
		start = time.Now()
		b = newBatch(&endpoint{}, start, 2, 1000, send)
		b.hear(1, Answer{Data: []byte(`{"seq":3}`)})
		b.hear(0, Answer{Data: []byte(`{"seq":4}`)})
		if got, took := await.Receive(t, "the answer", sent), time.Since(start); got != `{"jobs":[{"seq":4},{"seq":3}]}` || took != 0 {
			t.Errorf("after %v: %s", took, got)
		}
		select {
		case again := <-sent:
			t.Errorf("sent again: %s", again)
		case <-time.After(2 * answerBatchWithin):
		}
	})
}

// firstOpen is a queue that keeps its first job open and takes all others.
type firstOpen struct {
	first func(Receipt, *Refusal)
	taken weak.Pointer[Job] // the newest
}

func (q *firstOpen) Put(j *Job, done func(Receipt, *Refusal)) {
	if q.first == nil {
		q.first = done
		return
	}
	q.taken = weak.Make(j)
	done(Receipt{Stream: "WEIR_a_0", Seq: 1, Job: j.ID, Key: j.Key}, nil)
}

func (q *firstOpen) Stream(string) string { return "WEIR_a_0" }

// TestOpenJobsKeepOnlyThemselves checks that a job that stays open keeps neither the message of its batch in memory nor
// the other jobs.
func TestOpenJobsKeepOnlyThemselves(t *testing.T) {
	t.Parallel()
	q := &firstOpen{}
	apis := map[string]*API{"a": {Queue: q, Rule: &Rule{API: "a", Methods: []string{"POST"}, MaxBody: 64}}}
	s := &Service{
		opts: Options{Conn: &nats.Conn{}, APIs: func() map[string]*API { return apis }}, log: slog.New(slog.DiscardHandler), metrics: newMetrics(nil),
	}
	data := []byte(strings.Repeat("16 2 k\r\nNats-Msg-Id: 1\r\n{}", 3))
	message := weak.Make(&data[0])
	s.handleBatch(&endpoint{}, &nats.Msg{Subject: "weir.jobs.a._", Header: nats.Header{"Weir-Batch": {"3"}}, Data: data}, "a._")
	runtime.GC()
	if message.Value() != nil {
		t.Error("the message is still in memory")
	}
	if q.taken == (weak.Pointer[Job]{}) || q.taken.Value() != nil {
		t.Error("a job with an answer is still in memory")
	}
	q.first(Receipt{Stream: "WEIR_a_0", Seq: 2, Job: "1", Key: "k"}, nil)
}
