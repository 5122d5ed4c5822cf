package takeover

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// stockRig is a removalRig with a control bucket, and a stream whose first message has sequence 20.
func stockRig(t *testing.T) (*Takeover, *[]lane.StreamChange) {
	t.Helper()
	w, p, told := removalRig(t)
	js := w.Env.JS
	var err error
	if w.Env.Control, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "WEIR_pay_0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(20)); err != nil {
		t.Fatal(err)
	}
	return p, told
}

// note stores a note of the former owner, which stays until it is read.
func (p *Takeover) note(t *testing.T, inv inventory) {
	t.Helper()
	inv.At, inv.Born, inv.Read = time.Now(), p.bucketBorn(), 19
	data, err := json.Marshal(&inv)
	if err == nil {
		_, err = p.W.Env.Control.Put(t.Context(), inventoryKey("WEIR_pay_0"), data)
	}
	if err == nil {
		err = p.stock.beginStocktaking(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *Takeover) bucketBorn() time.Time { born, _ := p.Bucket.ReadFrom(); return born }

// TestFirstSeqsBesideAReplicaThatLags checks that a stream's first sequence comes from the newest note, although a
// replica that lags has none. A deleted note counts as none.
func TestFirstSeqsBesideAReplicaThatLags(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"})
	if err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, js, "KV_control")
	if _, err := kv.Put(t.Context(), inventoryKey("WEIR_pay_0"), []byte(`{"read":19}`)); err != nil {
		t.Fatal(err)
	}
	first, err := FirstSeqs(t.Context(), js.Conn(), kv, "pay", 2)
	if want := map[string]uint64{"WEIR_pay_0": queue.BehindAll(19)}; err != nil || !maps.Equal(first, want) {
		t.Errorf("the first sequences are %v, %v; want %v", first, err, want)
	}
	if err := kv.Delete(t.Context(), inventoryKey("WEIR_pay_0")); err != nil {
		t.Fatal(err)
	}
	if first, err := FirstSeqs(t.Context(), js.Conn(), kv, "pay", 2); err != nil || len(first) > 0 {
		t.Errorf("after the note was deleted, the first sequences are %v, %v", first, err)
	}
}

// TestStockKnowsWhatHasEnded checks that a job that the former owner noted is not reported as missing if the stream
// still has it, or if it has ended since.
func TestStockKnowsWhatHasEnded(t *testing.T) {
	p, told := stockRig(t)
	p.note(t, inventory{Count: 6, Jobs: map[string][]uint64{"k": {10, 1, 1, 1}, "l": {14, 1}}})
	record, err := json.Marshal(ledger.Record{API: "pay", Key: "k", Stream: "WEIR_pay_0", Seq: 11, Final: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.W.Env.JS.Publish(t.Context(), (&ledger.Record{API: "pay", Key: "k"}).Subject(), record); err != nil {
		t.Fatal(err)
	}
	l := &deadletter.Letter{API: "pay", Key: "k", Reason: deadletter.Cancelled, At: time.Now(), Origin: ledger.OriginOf("WEIR_pay_0", 12, bucket.MicrosOf(time.Now()))}
	if err := p.W.Env.Letters.Bury(l); err != nil {
		t.Fatal(err)
	}
	p.stock.former.met(14)
	if err := p.stock.tellStock(t.Context()); err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, m := range storedLetters(t, p.W) {
		if detail := m.Header.Get("Weir-Dead-Detail"); detail != "" {
			lost = append(lost, m.Header.Get("Weir-Key")+" "+strings.Fields(detail)[2]+" "+m.Header.Get("Weir-Dead-Billed"))
		}
	}
	slices.Sort(lost)
	if !slices.Equal(lost, []string{"k 10 unknown", "k 13 unknown", "l 15 unknown"}) {
		t.Errorf("the letters are of %q", lost)
	}
	if len(*told) != 1 || !strings.HasPrefix((*told)[0].What, "3 jobs that waited were deleted by hand while weir was stopped; each becomes") {
		t.Errorf("told %+v", *told)
	}
}

// TestStockThatCannotBeNamed checks that the number of missing jobs is reported if keys or sequences did not fit into
// the note. The number is exact if the former owner had given the partition up.
func TestStockThatCannotBeNamed(t *testing.T) {
	for name, c := range map[string]struct {
		inventory
		met  uint64
		want string
	}{
		"no keys":                 {inventory{Count: 3, Jobs: map[string][]uint64{"": {10, 1, 4}}}, 11, "2 jobs that waited were deleted by hand while weir was stopped; 0 become letters (unknown); 2 cannot be named"},
		"a number":                {inventory{Count: 7, Closed: true}, 11, "6 jobs that waited were deleted by hand while weir was stopped; 0 become letters (unknown); 6 cannot be named"},
		"a number before a kill":  {inventory{Count: 7}, 0, "7 jobs that waited were deleted by hand while weir was stopped; so many waited a few seconds before"},
		"some have ended since":   {inventory{Count: 7}, 11, ""},
		"all are there":           {inventory{Count: 1, Jobs: map[string][]uint64{"k": {10}}}, 10, ""},
		"all are there, numbered": {inventory{Count: 1, Closed: true}, 10, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, told := stockRig(t)
			p.note(t, c.inventory)
			if c.met > 0 {
				p.stock.former.met(c.met)
			}
			if err := p.stock.tellStock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(*told); c.want == "" && len(*told) > 0 || !strings.Contains(text, c.want) {
				t.Errorf("told %s", text)
			}
		})
	}
}

// TestInventoryOfManyKeys checks that a note keeps no keys in memory if they do not fit, and has every job then, too.
func TestInventoryOfManyKeys(t *testing.T) {
	for room, want := range map[int]map[string][]uint64{
		3 * (keyBytes + 1): {"a": {5, 9}, "b": {7}, "c": {6}},
		3*(keyBytes+1) - 1: {"": {5, 6, 7, 9}},
		2*(keyBytes+1) - 1: {"": {5, 6, 7, 9}},
		keyBytes:           {"": {5, 6, 7, 9}},
	} {
		inv := inventory{Jobs: map[string][]uint64{}, room: room}
		inv.list("a", slices.Values([]uint64{5, 9}))
		inv.list("b", slices.Values([]uint64{7}))
		inv.list("c", slices.Values([]uint64{6}))
		slices.Sort(inv.Jobs[""])
		if inv.Jobs[""] == nil {
			delete(inv.Jobs, "")
		}
		if !maps.EqualFunc(inv.Jobs, want, slices.Equal) {
			t.Errorf("with room for %d bytes the note has %v, want %v", room, inv.Jobs, want)
		}
	}
}

// TestInventoryFits checks that a note that is too long leaves out first the keys and then the sequences, but never the
// number of jobs.
func TestInventoryFits(t *testing.T) {
	for bytes, want := range map[int]string{1000: `"jobs":{"a":[5,4],"b":[7]}`, 150: `"jobs":{"":[5,2,2]}`, 10: `"count":3}`} {
		inv := inventory{Count: 3, Jobs: map[string][]uint64{"a": {5, 4}, "b": {7}}}
		if bytes == 150 {
			inv.Jobs = map[string][]uint64{strings.Repeat("a", 200): {5, 4}, "b": {7}}
		}
		if data := string(inv.fit(bytes)); !strings.Contains(data, want) {
			t.Errorf("in %d bytes: %s", bytes, data)
		}
	}
}
