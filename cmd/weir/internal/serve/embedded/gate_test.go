package embedded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/nats/jsproxy"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// house is a server that separates producers from operators, with weir's streams and buckets.
type house struct {
	t         *testing.T
	url       string
	operator  *nats.Conn
	operators jetstream.JetStream
	anybody   *nats.Conn
	js        jetstream.JetStream // of a client without credentials
}

func newHouse(t *testing.T) *house {
	t.Helper()
	o := options(t, "127.0.0.1:0", t.TempDir())
	o.Auth = Operators
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	access, err := s.Access()
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, url: s.ClientURL()}
	h.operator, h.operators = h.connect(access...)
	h.anybody, h.js = h.connect()
	for name, subject := range map[string]string{
		"WEIR_RESULTS": "weir.results.>", "WEIR_DEAD": "weir.dead.>", "WEIR_EVENTS": "weir.events.>", "WEIR_pay_0": "weir.q.>", "OTHERS": "others.>",
	} {
		if _, err := h.operators.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.operators.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "weir_config"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *house) connect(access ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	h.t.Helper()
	nc, err := nats.Connect(h.url, append(access, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		h.t.Fatal(err)
	}
	return nc, js
}

// store puts n messages into a stream.
func (h *house) store(prefix string, n int) {
	h.t.Helper()
	for i := range n {
		if _, err := h.operators.Publish(h.t.Context(), fmt.Sprintf("%s.k%d", prefix, i), []byte("x")); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) stream(js jetstream.JetStream, name string) jetstream.Stream {
	h.t.Helper()
	s, err := js.Stream(h.t.Context(), name)
	if err != nil {
		h.t.Fatalf("stream %s: %v", name, err)
	}
	return s
}

// TestAnybodyReads checks that clients without credentials can list streams and consumers, get messages, and use
// ordered, pull and push consumers, acknowledgements and watches. Messages have the subjects under which they were
// stored.
func TestAnybodyReads(t *testing.T) {
	h := newHouse(t)
	const n = 5
	h.store("weir.results.pay", n)
	if _, err := h.js.AccountInfo(t.Context()); err != nil {
		t.Errorf("account: %v", err)
	}
	s := h.stream(h.js, "WEIR_RESULTS")
	if m, err := s.GetMsg(t.Context(), 2); err != nil || m.Subject != "weir.results.pay.k1" {
		t.Errorf("the second message: %v %v", m, err)
	}
	if m, err := s.GetLastMsgForSubject(t.Context(), "weir.results.pay.k3"); err != nil || m.Sequence != 4 {
		t.Errorf("the last of k3: %v %v", m, err)
	}
	count := 0
	for range h.js.StreamNames(t.Context()).Name() {
		count++
	}
	if count != 6 {
		t.Errorf("%d streams are told of", count)
	}
	ordered, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := ordered.Messages()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m, err := messages.Next()
		if err != nil || m.Subject() != fmt.Sprintf("weir.results.pay.k%d", i) {
			t.Fatalf("message %d of an ordered consumer: %v %v", i, m, err)
		}
	}
	messages.Stop()
	if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Name: "seen"}); err != nil {
		t.Fatal(err)
	}
	consumers, seen := s.ListConsumers(t.Context()), false
	for info := range consumers.Info() {
		seen = seen || info.Name == "seen"
	}
	if !seen || consumers.Err() != nil {
		t.Errorf("the list of consumers lacks one of one's own: %v", consumers.Err())
	}
	for _, config := range []jetstream.ConsumerConfig{{AckPolicy: jetstream.AckExplicitPolicy}, {Durable: "mine", AckPolicy: jetstream.AckExplicitPolicy}} {
		pull, err := s.CreateOrUpdateConsumer(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := pull.Fetch(n, jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for m := range batch.Messages() {
			count++
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Errorf("acknowledge %s: %v", m.Subject(), err)
			}
		}
		if count != n || batch.Error() != nil {
			t.Errorf("%d of %d messages were pulled: %v", count, n, batch.Error())
		}
		if info, err := pull.Info(t.Context()); err != nil || info.NumAckPending != 0 || info.AckFloor.Consumer != n {
			t.Errorf("acknowledged: %+v %v", info, err)
		}
		if err := s.DeleteConsumer(t.Context(), pull.CachedInfo().Name); err != nil {
			t.Errorf("a consumer of one's own is not deleted: %v", err)
		}
	}
	pushed, err := h.anybody.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []nats.SubOpt{nats.OrderedConsumer(), nats.AckExplicit()} {
		sub, err := pushed.SubscribeSync("weir.results.>", nats.BindStream("WEIR_RESULTS"), kind)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if m, err := sub.NextMsg(10 * time.Second); err != nil || m.Subject != fmt.Sprintf("weir.results.pay.k%d", i) {
				t.Fatalf("message %d that was pushed: %v %v", i, m, err)
			}
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}
	kv, err := h.js.KeyValue(t.Context(), "weir_config")
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "what stands in the bucket, which is nothing", watch.Updates())
	h.store("$KV.weir_config", 1)
	if entry := await.Receive(t, "an entry", watch.Updates()); entry == nil || entry.Key() != "k0" {
		t.Errorf("the watcher of a bucket saw %v", entry)
	}
}

// TestAnybodyListens checks that clients without credentials hear events, results and replies to producers, and nothing
// else.
func TestAnybodyListens(t *testing.T) {
	h := newHouse(t)
	inbox := nats.NewInbox()
	heard, err := h.anybody.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.anybody.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"weir.q.pay.0.j.k", "$KV.weir_config.current", inbox, "orders.4", "weir.events.dead.pay.k", "weir.results.pay.k", jsproxy.ReplyPrefix + inbox, jsproxy.ReplyPrefix + "orders.done.4"} {
		if err := h.operator.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"weir.events.dead.pay.k", "weir.results.pay.k", inbox, "orders.done.4"} {
		if m, err := heard.NextMsg(10 * time.Second); err != nil || m.Subject != want {
			t.Fatalf("heard %v, want %s: %v", m, want, err)
		}
	}
}

// TestAnybodySubmits checks that a client without credentials can submit a job and gets the answer, by every way to
// send a request.
func TestAnybodySubmits(t *testing.T) {
	h := newHouse(t)
	jobs := make(chan *nats.Msg, 8)
	_, err := h.operator.QueueSubscribe("weir.jobs.>", "q", func(m *nats.Msg) {
		if m.Reply != "" {
			if err := m.Respond([]byte(`{"stream":"WEIR_pay_0","seq":7}`)); err != nil {
				t.Error(err)
			}
		}
		jobs <- m
	})
	if err == nil {
		err = h.operator.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	const subject = "weir.jobs.pay.k"
	if m, err := h.anybody.Request(subject, []byte("1"), 10*time.Second); err != nil || !strings.Contains(string(m.Data), `"seq":7`) {
		t.Errorf("a request: %v %v", m, err)
	}
	if ack, err := h.js.Publish(t.Context(), subject, []byte("2"), jetstream.WithMsgID("id")); err != nil || ack.Sequence != 7 {
		t.Errorf("a publish of JetStream: %v %v", ack, err)
	}
	future, err := h.js.PublishAsync(subject, []byte("3"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case ack := <-future.Ok():
		if ack.Sequence != 7 {
			t.Errorf("an asynchronous publish: %v", ack)
		}
	case err := <-future.Err():
		t.Errorf("an asynchronous publish: %v", err)
	}
	if err := h.anybody.Publish(subject, []byte("4")); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if m := await.Receive(t, "a job", jobs); string(m.Data) != fmt.Sprint(i+1) || m.Subject != subject || (i == 1) != (m.Header.Get("Nats-Msg-Id") == "id") {
			t.Errorf("job %d came in as %s with %v", i, m.Data, m.Header)
		}
	}
}

// TestAnybodyMayNot checks that clients without credentials have none of the operators' rights, whichever way they try.
func TestAnybodyMayNot(t *testing.T) {
	h := newHouse(t)
	h.store("weir.results.pay", 3)
	h.store("others", 3)
	mayNot(t, h.anybody)
	own, err := h.stream(h.operators, "WEIR_RESULTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := h.stream(h.js, "WEIR_RESULTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	// No answer goes to a stream, whatever the request is.
	for question, body := range map[string]string{
		"$JS.API.DIRECT.GET.WEIR_RESULTS": `{"seq":2}`, "$JS.API.STREAM.MSG.GET.WEIR_RESULTS": `{"seq":2}`, "$JS.API.STREAM.INFO.WEIR_RESULTS": "",
		"$JS.API.DIRECT.GET.WEIR_RESULTS.weir.results.pay.k0": "", "$JS.API.CONSUMER.MSG.NEXT.WEIR_RESULTS." + mine.CachedInfo().Name: "1",
		"$JS.API.CONSUMER.CREATE.WEIR_RESULTS": `{"stream_name":"WEIR_RESULTS","config":{"ack_policy":"none"}}`, "weir.jobs.pay.k": "",
		"$SRV.PING": "", "$JS.API.INFO": "", "$JS.ACK.WEIR_RESULTS." + mine.CachedInfo().Name + ".1.1.1.1.1": "+NXT",
	} {
		if err := h.anybody.PublishRequest(question, "$KV.weir_config.current", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	// No messages of a consumer go to a stream either.
	_, err = h.stream(h.js, "WEIR_RESULTS").CreatePushConsumer(t.Context(), jetstream.ConsumerConfig{DeliverSubject: "$KV.weir_config.current"})
	if err != nil {
		t.Errorf("a push consumer: %v", err)
	}
	// Readers cannot use the consumers of operators.
	names := h.stream(h.js, "WEIR_RESULTS").ConsumerNames(t.Context())
	for name := range names.Name() {
		if name == "billing" {
			t.Error("an operator's consumer is listed")
		}
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
	if err := h.stream(h.js, "WEIR_RESULTS").DeleteConsumer(t.Context(), "billing"); err == nil {
		t.Error("an operator's consumer was deleted")
	}
	_, err = h.stream(h.js, "WEIR_RESULTS").UpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "weir.results.none.>"})
	if err == nil {
		t.Error("an operator's consumer was changed")
	}
	batch, err := own.Fetch(1, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := errors.Join(h.anybody.PublishRequest(m.Reply(), nats.NewInbox(), nil), h.anybody.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.stream(h.js, "OTHERS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{}); err == nil {
		t.Error("a consumer of a stream that is not weir's")
	}
	// The requests above are done: the gate handles one after the other, and so does JetStream.
	if _, err := h.stream(h.js, "WEIR_EVENTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{}); err != nil {
		t.Fatal(err)
	}
	info, err := own.Info(t.Context())
	if err != nil || info.NumAckPending != 1 || info.AckFloor.Stream != 0 {
		t.Errorf("another client acknowledged an operator's message: %+v %v", info, err)
	}
	if n := h.stream(h.operators, "KV_weir_config").CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages got into the configuration", n)
	}
}

// TestTheAnswerGoesWhereItIsAsked shows the hole that the separate accounts close: in the streams' own account, a user
// who may only ask for a message can make the server publish it on any subject.
func TestTheAnswerGoesWhereItIsAsked(t *testing.T) {
	h := newHouse(t)
	h.store("weir.results.pay", 1)
	if err := errors.Join(h.operator.PublishRequest("$JS.API.DIRECT.GET.WEIR_RESULTS", "$KV.weir_config.current", []byte(`{"seq":1}`)), h.operator.Flush()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for h.stream(h.operators, "KV_weir_config").CachedInfo().State.Msgs == 0 {
		select {
		case <-ctx.Done():
			t.Fatal("the server does not publish answers into streams any more: is the account of the producers still needed?")
		case <-time.After(time.Millisecond):
		}
	}
}

// mayNot checks that a client does not have operators' rights.
func mayNot(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for subject, may := range map[string]bool{
		"weir.jobs.pay.k": true, "weir.operator.redrive.pay.k": false, "weir.operator.cancel.pay": false, "weir.q.pay.0.j.k": false, "weir.q.pay.0.i.k": false,
		"weir.o.pay.0": false, "weir.calls.pay.k": false, "weir.dead.pay.rejected.k": false, "weir.events.dead.pay.k": false,
		"$KV.weir_config.current": false, "$JS.API.STREAM.DELETE.WEIR_DEAD": false, "$JS.API.STREAM.PURGE.WEIR_DEAD": false,
		"$JS.API.STREAM.CREATE.X": false, "$JS.API.STREAM.UPDATE.WEIR_DEAD": false, "$JS.API.STREAM.MSG.DELETE.WEIR_DEAD": false,
		"$JS.API.STREAM.SNAPSHOT.WEIR_DEAD": false, "$JS.API.CONSUMER.PAUSE.WEIR_DEAD.x": false, "_INBOX.somebody": false,
		"weir.results.pay.k": false, "weir.gate.ack.WEIR_DEAD.x": false, "weir.reply.x": false, "orders.x": false,
	} {
		if err := errors.Join(nc.Publish(subject, nil), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		refused := nc.LastError() != nil && strings.Contains(nc.LastError().Error(), `"`+subject+`"`)
		if refused == may {
			t.Errorf("a client without rights publishes to %s: refused is %v", subject, refused)
		}
	}
	for _, subject := range []string{"weir.jobs.>", "weir.operator.redrive.>", "$JS.API.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := nc.LastError(); err == nil || !strings.Contains(err.Error(), subject) {
			t.Errorf("a client without rights hears %s: %v", subject, err)
		}
	}
}
