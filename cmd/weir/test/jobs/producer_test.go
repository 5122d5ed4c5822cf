package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// gate is an api that answers no call before it is opened.
type gate struct {
	open chan struct{}
	once sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{open: make(chan struct{})}
	t.Cleanup(g.lift)
	return g
}

func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

func (g *gate) script(ctx context.Context, r *fakeapi.Request) fakeapi.Behaviour {
	_ = r.Body() // only then is a client noticed that gives up
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	return fakeapi.Behaviour{}
}

// publishing is one way in which a producer of NATS's own client publishes.
type publishing struct {
	name    string
	publish func(r *weirtest.Rig, subject, id string) (stream string, seq uint64, duplicate bool, err error)
	code    func(error) (code, errCode int, ok bool)
}

func waysToPublish() []publishing {
	modern := func(err error) (int, int, bool) {
		var e *jetstream.APIError
		if !errors.As(err, &e) {
			return 0, 0, false
		}
		return e.Code, int(e.ErrorCode), true
	}
	legacy := func(err error) (int, int, bool) {
		var e *nats.APIError
		if !errors.As(err, &e) {
			return 0, 0, false
		}
		return e.Code, int(e.ErrorCode), true
	}
	return []publishing{{"jetstream", func(r *weirtest.Rig, subject, id string) (string, uint64, bool, error) {
		ack, err := r.JS.Publish(await.Context(r.T, "the answer to a job"), subject, []byte(id), jetstream.WithMsgID(id))
		if err != nil {
			return "", 0, false, err
		}
		return ack.Stream, ack.Sequence, ack.Duplicate, nil
	}, modern}, {"jetstream-async", func(r *weirtest.Rig, subject, id string) (string, uint64, bool, error) {
		future, err := r.JS.PublishAsync(subject, []byte(id), jetstream.WithMsgID(id))
		if err != nil {
			return "", 0, false, err
		}
		select {
		case ack := <-future.Ok():
			return ack.Stream, ack.Sequence, ack.Duplicate, nil
		case err := <-future.Err():
			return "", 0, false, err
		case <-time.After(weirtest.Patience):
			return "", 0, false, errors.New("waited in vain for the answer to a job")
		}
	}, modern}, {"legacy", func(r *weirtest.Rig, subject, id string) (string, uint64, bool, error) {
		js, err := r.NC.JetStream(nats.MaxWait(weirtest.Patience))
		if err != nil {
			return "", 0, false, err
		}
		ack, err := js.Publish(subject, []byte(id), nats.MsgId(id))
		if err != nil {
			return "", 0, false, err
		}
		return ack.Stream, ack.Sequence, ack.Duplicate, nil
	}, legacy}}
}

// TestPublishers is a program that knows JetStream and not weir: it sees PubAcks, duplicates and errors as from a
// stream, whatever the way it publishes.
func TestPublishers(t *testing.T) {
	t.Parallel()
	for name, overrides := range map[string]string{"stream-counts": "{}", "weir-counts": "{vip: {capacity: 50}}"} {
		t.Run(name, func(t *testing.T) { publishAll(t, overrides) })
	}
}

func publishAll(t *testing.T, overrides string) {
	g := newGate(t)
	r := weirtest.NewRig(t, fakeapi.Options{Script: g.script, KeepBody: 64}, `
apis:
  credit:
    url: %s
    bucket: {rate: 1000/s, burst: 10, capacity: 3, in_flight: 1}
    keys: `+overrides+`
`)
	seqs := map[string]uint64{}
	for _, way := range waysToPublish() {
		key := way.name
		for i := range 3 {
			id := fmt.Sprintf("%s-%d", key, i)
			stream, seq, duplicate, err := way.publish(r, "weir.jobs.credit."+key, id)
			if err != nil || duplicate || seq == 0 || stream != queue.StreamName("credit", queue.PartitionOf(key, 4)) {
				t.Fatalf("%s: stream %s, seq %d, duplicate %v, %v", id, stream, seq, duplicate, err)
			}
			seqs[id] = seq
			checkStored(r, stream, seq, key, id)
		}
		for range 2 { // refused, it is not known: the second time it is refused again
			_, _, _, err := way.publish(r, "weir.jobs.credit."+key, key+"-too-many")
			if code, errCode, ok := way.code(err); !ok || code != 429 || errCode != 20429 {
				t.Errorf("%s: a full bucket answers %v", key, err)
			}
		}
		if _, seq, duplicate, err := way.publish(r, "weir.jobs.credit."+key, key+"-1"); err != nil || !duplicate || seq != seqs[key+"-1"] {
			t.Errorf("%s: on a full bucket its job sent again: seq %d, duplicate %v, %v; first seq %d", key, seq, duplicate, err, seqs[key+"-1"])
		}
		_, _, _, err := way.publish(r, "weir.jobs.none."+key, "x")
		if code, errCode, ok := way.code(err); !ok || code != 404 || errCode != 20404 {
			t.Errorf("%s: an unknown api answers %v", key, err)
		}
	}
	g.lift()
	r.AwaitCalls(9)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	for _, way := range waysToPublish() {
		for i := range 3 {
			id := fmt.Sprintf("%s-%d", way.name, i)
			_, seq, duplicate, err := way.publish(r, "weir.jobs.credit."+way.name, id)
			if err != nil || !duplicate || seq != seqs[id] {
				t.Errorf("%s, finished, sent again: seq %d, duplicate %v, %v; first seq %d", id, seq, duplicate, err, seqs[id])
			}
		}
		if _, _, duplicate, err := way.publish(r, "weir.jobs.credit."+way.name, way.name+"-too-many"); err != nil || duplicate {
			t.Errorf("%s: refused before, sent again when there is room: duplicate %v, %v", way.name, duplicate, err)
		}
	}
	r.AwaitCalls(12)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	if calls := len(r.API.All()); calls != 12 {
		t.Errorf("%d calls for 12 jobs", calls)
	}
}

// checkStored holds a receipt to the stream it names.
func checkStored(r *weirtest.Rig, stream string, seq uint64, key, body string) {
	r.T.Helper()
	s, err := r.JS.Stream(r.T.Context(), stream)
	if err != nil {
		r.T.Fatal(err)
	}
	msg, err := s.GetMsg(r.T.Context(), seq)
	if err != nil {
		r.T.Fatalf("no message stands behind the receipt %s/%d: %v", stream, seq, err)
	}
	if string(msg.Data) != body || !strings.HasSuffix(msg.Subject, "."+ingest.Token(key)) {
		r.T.Errorf("behind the receipt of %s stands %q on %s", body, msg.Data, msg.Subject)
	}
}

// TestReceiptOfAKnownJob is what weir says beyond JetStream when a job comes again.
func TestReceiptOfAKnownJob(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	r := weirtest.NewRig(t, fakeapi.Options{Script: g.script}, `
apis:
  credit: {url: %s, bucket: {rate: 1000/s, capacity: 5, in_flight: 1}}
`)
	id := func(i int) map[string]string { return map[string]string{"Nats-Msg-Id": fmt.Sprint("job-", i)} }
	for i := range 3 {
		if a := r.Producer().Submit("weir.jobs.credit.k", nil, id(i)); a.Position != i+1 || a.Duplicate || a.ETAms == nil || *a.ETAms < 0 {
			t.Errorf("job %d: %+v", i, a)
		}
	}
	for i := range 3 {
		if a := r.Producer().Submit("weir.jobs.credit.k", nil, id(i)); a.Position != i+1 || !a.Duplicate || a.ETAms == nil || a.Job != fmt.Sprint("job-", i) || a.Key != "k" {
			t.Errorf("job %d again: %+v", i, a)
		}
	}
	if a := r.Producer().Submit("weir.jobs.credit.other", nil, id(0)); a.Duplicate || a.Error != nil {
		t.Errorf("the same id under another key is another job: %+v", a)
	}
	g.lift()
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	for again := range 2 {
		if a := r.Producer().Submit("weir.jobs.credit.k", nil, id(1)); !a.Duplicate || a.Position != 0 || a.ETAms != nil || a.Seq == 0 {
			t.Errorf("finished, asked for after %d restarts: %+v", again, a)
		}
		r.Stop()
		r.Start()
	}
}

// TestPlainPublish: a publish without a reply is a job like any other, and its refusal a letter.
func TestPlainPublish(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{KeepBody: 64}, `
apis:
  credit: {url: %s, bucket: {rate: 1000/s, burst: 10, capacity: 100}}
`)
	for subject, body := range map[string]string{"weir.jobs.credit.k": "good", "weir.jobs.none.k": "lost its way"} {
		if err := r.NC.Publish(subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if a := r.AwaitCalls(1); string(a[0].Body) != "good" {
		t.Errorf("called with %q", a[0].Body)
	}
	r.Eventually("the letter", func() bool { return len(r.Store().Letters("_", "k")) == 1 })
	if body := r.Store().Letters("_", "k")[0].Data; string(body) != "lost its way" {
		t.Errorf("the letter holds %q", body)
	}
}

// TestReplyTo: the subject a job names gets one message at its end, whichever it is.
func TestReplyTo(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Script: func(_ context.Context, r *fakeapi.Request) fakeapi.Behaviour {
		if r.Path == "/no" {
			return fakeapi.Behaviour{Status: 422}
		}
		return fakeapi.Behaviour{}
	}}, `
apis:
  credit: {url: %s, max_body: 100B, bucket: {rate: 1000/s, burst: 10, capacity: 100}}
`)
	ends, err := r.NC.SubscribeSync("_INBOX.mine.>")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"done": "done", "rejected": "rejected", "invalid": "invalid", "large": "invalid", "unknown-api": "invalid", "last": "done"}
	send := func(id, subject, body string, header map[string]string) {
		h := map[string]string{"Weir-Reply-To": "_INBOX.mine." + id, "Nats-Msg-Id": id}
		for name, value := range header {
			h[name] = value
		}
		r.Producer().Submit(subject, []byte(body), h)
	}
	send("done", "weir.jobs.credit.k", "x", nil)
	send("rejected", "weir.jobs.credit.k", "x", map[string]string{"Weir-Path": "/no"})
	send("invalid", "weir.jobs.credit.k", "x", map[string]string{"Weir-Method": "BREW"})
	send("large", "weir.jobs.credit.k", strings.Repeat("x", 101), nil)
	send("unknown-api", "weir.jobs.none.k", "x", nil)
	r.Eventually("an empty queue", func() bool { return r.Store().Waiting("credit") == 0 })
	send("last", "weir.jobs.credit.k", "x", nil)
	got := map[string]string{}
	for got["last"] == "" {
		msg, err := ends.NextMsg(weirtest.Patience)
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		id := strings.TrimPrefix(msg.Subject, "_INBOX.mine.")
		if got[id] != "" {
			t.Errorf("%s got a second message", id)
		}
		got[id] = msg.Header.Get("Weir-Outcome")
		if isLetter := got[id] != "done"; isLetter != (len(msg.Data) == 0) || isLetter != (msg.Header.Get("Weir-Dead-Reason") != "") {
			t.Errorf("%s: body %q, header %v", id, msg.Data, msg.Header)
		}
		if msg.Header.Get("Weir-Job-Id") != id {
			t.Errorf("%s: it says job %s", id, msg.Header.Get("Weir-Job-Id"))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestKeysOfAnyText: whatever a key is made of, its jobs are one bucket, and its token is one in every subject.
func TestKeysOfAnyText(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit: {url: %s, bucket: {rate: 1000/s, burst: 10, capacity: 100}}
`)
	keys := []string{"a b", "*", ">", "tenant.42", "naïve", "日本", "_", "100%", "%41", "\t\n", "a/b", "\x01", strings.Repeat("k", 128), strings.Repeat("é", 64)}
	for i, key := range keys {
		a := r.Producer().Submit("weir.jobs.credit."+ingest.Token(key), nil, nil)
		if a.Error != nil || a.Key != key {
			t.Errorf("%q: %+v", key, a)
		}
		r.AwaitCalls(i + 1)
		r.Eventually("its result", func() bool { return len(r.Store().Results("credit", ingest.Token(key))) == 1 })
	}
	for _, plain := range []string{"tenant.42", "naïve", "日本", "100%"} { // as a producer may write them too
		if a := r.Producer().Submit("weir.jobs.credit."+plain, nil, nil); a.Error != nil || a.Key != plain {
			t.Errorf("%q: %+v", plain, a)
		}
	}
	for _, bad := range []string{strings.Repeat("k", 129), url.PathEscape(strings.Repeat("é", 65)), "%FF"} {
		if a := r.Producer().Submit("weir.jobs.credit."+bad, nil, nil); a.Error == nil || a.Error.ErrCode != 20400 || a.Letter == 0 {
			t.Errorf("%q: %+v", bad, a)
		}
	}
	if letters := r.Store().Letters("credit", "_"); len(letters) != 3 {
		t.Errorf("%d letters of keys that cannot be, want 3", len(letters))
	}
}

// TestBatchPublishers: clients that use JetStream's batches are refused, and each of their jobs is a letter.
func TestBatchPublishers(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  credit: {url: %s, bucket: {rate: 1000/s, capacity: 100}}
`)
	inbox, err := r.NC.SubscribeSync("_INBOX.batch.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.NC.PublishRequest("weir.jobs.credit.k", "_INBOX.batch.uuid.10.fail.1.0.$FI", []byte("fast")); err != nil {
		t.Fatal(err)
	}
	reply, err := inbox.NextMsg(weirtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var a producer.Answer
	if err := json.Unmarshal(reply.Data, &a); err != nil || a.Error == nil || a.Error.ErrCode != 20400 {
		t.Errorf("a fast batch is answered %s", reply.Data)
	}
	for _, h := range []map[string]string{
		{"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"},
		{"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"},
	} {
		if a := r.Producer().Submit("weir.jobs.credit.k", []byte("batch"), h); a.Error == nil || a.Error.ErrCode != 20400 {
			t.Errorf("%v is answered %+v", h, a)
		}
	}
	if letters := r.Store().Letters("credit", "k"); len(letters) != 3 || len(r.API.All()) != 0 {
		t.Errorf("%d letters and %d calls", len(letters), len(r.API.All()))
	}
}
