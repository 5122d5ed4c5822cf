package lane

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/bucket/queue"

	"github.com/nats-io/nats.go"
)

// TestKept checks that messages are the same after they were packed and unpacked.
func TestKept(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_123_456).UTC()
	for name, e := range map[string]queue.Entry{
		"plain":  {Header: nats.Header{"Nats-Msg-Id": {"k/1"}, "Weir-Job-Id": {"1"}}, Data: []byte("body")},
		"bare":   {Header: nats.Header{}},
		"many":   {Header: nats.Header{"A": {"1", "2", ""}, "B": {strings.Repeat("x", 60_000)}}, Data: []byte{0}},
		"binary": {Header: nats.Header{"Ü": {"ä\x00"}}, Data: []byte(strings.Repeat("\x00\xff", 1<<17))},
	} {
		e.Seq, e.Key, e.Time = 7, "k", at
		k := pack(e)
		got := k.entry("k", 7)
		got.Time = got.Time.UTC()
		if len(e.Data) == 0 {
			got.Data = nil
		}
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %d bytes came back as another message", name, len(k.packed))
		}
	}
}

// TestKeptRoom checks that a partition counts the bytes of the messages that it keeps, and gives all of them back
// however its jobs end.
func TestKeptRoom(t *testing.T) {
	h := queue.NewHoldings(1 << 30)
	a := newReadAhead(h)
	held := func() int64 { _, kept, _, _ := h.Held(); return kept }
	body := make([]byte, 1<<20)
	seq := uint64(0)
	for before := int64(-1); held() != before; seq++ {
		before = held()
		a.KeepLocked(queue.Entry{Seq: seq + 1, Data: body})
	}
	if n := len(a.Messages); n < 4 || held() < int64(n)<<20 || held() > 32<<20 {
		t.Errorf("%d bodies of 1 MiB are kept, as %d bytes", n, held())
	}
	if e, ok := a.TakeKept("k", 1); !ok || len(e.Data) != 1<<20 || e.Key != "k" {
		t.Errorf("the first comes back as %d bytes", len(e.Data))
	}
	a.DropKept(2)
	a.DropKept(2)
	if _, ok := a.TakeKept("k", 2); ok {
		t.Error("a message that was let go of is there still")
	}
	a.DropAllKept()
	a.KeepLocked(queue.Entry{Seq: 99, Data: body})
	if held() != 0 || len(a.Messages) != 0 {
		t.Errorf("a part that has ended keeps %d bytes", held())
	}
}
