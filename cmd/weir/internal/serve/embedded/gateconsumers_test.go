package embedded

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/nats/jsproxy"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestNoSpellingPushesElsewhere checks that no spelling of a config's member makes a consumer push to a subject that
// the gate has not seen. The server ignores the case of members' names, and treats letters as equal that fold to the
// same letter. It would push with its own rights.
func TestNoSpellingPushesElsewhere(t *testing.T) {
	h := newHouse(t)
	h.store("weir.results.pay", 1)
	// The server pushes only if a client has subscribed to exactly that subject.
	if _, err := h.operator.SubscribeSync("$KV.weir_config.current"); err != nil {
		t.Fatal(err)
	}
	if err := h.operator.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, config := range []string{
		`"Deliver_Subject":"$KV.weir_config.current"`, `"DELIVER_SUBJECT":"$KV.weir_config.current"`,
		`"deliver_ſubject":"$KV.weir_config.current"`,
		`"deliver_subject":"_INBOX.x","deliver_\u017fubject":"$KV.weir_config.current"`,
		`"deliver_subject":"$KV.weir_config.current"`,
	} {
		request := fmt.Sprintf(`{"stream_name":"WEIR_RESULTS","config":{"ack_policy":"none","name":"c%d",%s}}`, i, config)
		if _, err := h.anybody.Request(fmt.Sprintf("$JS.API.CONSUMER.CREATE.WEIR_RESULTS.c%d", i), []byte(request),
			10*time.Second); err != nil {
			t.Fatal(err)
		}
		if c, err := h.stream(h.operators, "WEIR_RESULTS").PushConsumer(t.Context(), fmt.Sprintf("c%d", i)); err == nil {
			if to := c.CachedInfo().Config.DeliverSubject; !strings.HasPrefix(to, jsproxy.ReplyPrefix) {
				t.Errorf("{%s} pushes to %s", config, to)
			}
		}
	}
	if n := h.stream(h.operators, "KV_weir_config").CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages got into the configuration", n)
	}
}

// TestAnybodyAsksBriefly checks that the size of a request for a consumer is bounded. A consumer with thousands of
// filters would keep the server busy for minutes, and thousands of consumers with long metadata would fill its memory.
func TestAnybodyAsksBriefly(t *testing.T) {
	h := newHouse(t)
	filters := make([]string, 2000)
	for i := range filters {
		filters[i] = fmt.Sprintf("weir.results.pay.k%d", i)
	}
	for name, config := range map[string]jetstream.ConsumerConfig{
		"filters":  {FilterSubjects: filters},
		"metadata": {Metadata: map[string]string{"x": strings.Repeat("a", jsproxy.MostAsked)}},
	} {
		if _, err := h.stream(h.js, "WEIR_RESULTS").CreateConsumer(t.Context(), config); err == nil ||
			!strings.Contains(err.Error(), "at most") {
			t.Errorf("a consumer with long %s: %v", name, err)
		}
	}
	if _, err := h.stream(h.js, "WEIR_RESULTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		FilterSubjects: filters[:100],
	}); err != nil {
		t.Errorf("a consumer with 100 filters: %v", err)
	}
}

// TestAnybodyLeavesRoomForConsumers checks that weir and its operators can create consumers, however many consumers
// clients without credentials have created. A stream has room for a bounded number of consumers, and each takes memory.
func TestAnybodyLeavesRoomForConsumers(t *testing.T) {
	h := newHouse(t)
	makeThem := func(nc *nats.Conn, stream string, n int) (refused int) {
		t.Helper()
		answers, err := nc.SubscribeSync(nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		request := fmt.Appendf(nil,
			`{"stream_name":%q,"config":{"ack_policy":"none","mem_storage":true,"inactive_threshold":600000000000}}`, stream)
		for made := 0; made < n; made += 100 {
			for range min(100, n-made) {
				if err := nc.PublishRequest("$JS.API.CONSUMER.CREATE."+stream, answers.Subject, request); err != nil {
					t.Fatal(err)
				}
			}
			for range min(100, n-made) {
				answer, err := answers.NextMsg(20 * time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(answer.Data, []byte(`"error"`)) {
					refused++
				}
			}
		}
		return refused
	}
	if refused := makeThem(h.anybody, "WEIR_RESULTS", jsproxy.MostConsumers+20); refused != 20 {
		t.Errorf("of %d consumers beyond the bound %d were refused", 20, refused)
	}
	if refused := makeThem(h.operator, "WEIR_RESULTS", 100); refused != 0 {
		t.Errorf("%d of an operator's consumers were refused", refused)
	}
	// Each of the other streams has room, but all of them together have not.
	makeThem(h.operator, "WEIR_DEAD", jsproxy.MostConsumers-100)
	if refused := makeThem(h.anybody, "WEIR_EVENTS", 100); refused < 20 || refused == 100 {
		t.Errorf("of 100 consumers about the bound of all streams %d were refused", refused)
	}
}

// TestLongNamesLeaveTheGateOpen checks that the gate survives a request whose name just fits the server's bound of a
// control line, and no longer fits with the gate's prefix. The gate refuses it and answers the next request.
func TestLongNamesLeaveTheGateOpen(t *testing.T) {
	h := newHouse(t)
	long := strings.Repeat("x", 4020)
	for _, subject := range []string{
		"$JS.API.CONSUMER.CREATE.WEIR_DEAD." + long, "$JS.API.CONSUMER.CREATE." + long,
		"$JS.API.CONSUMER.DURABLE.CREATE.WEIR_DEAD." + long,
		"$JS.API.CONSUMER.DELETE.WEIR_DEAD." + long, "$JS.API.CONSUMER.LIST." + long, "$JS.API.CONSUMER.NAMES." + long,
		"$JS.ACK.WEIR_DEAD." + long + ".1.1.1.1.1",
	} {
		body := []byte(`{"stream_name":"WEIR_DEAD","config":{"name":"x"}}`)
		if err := h.anybody.Publish(subject, body); err != nil {
			t.Fatal(err)
		}
		msg, err := h.anybody.RequestWithContext(await.Context(t, subject[:40]), subject[:len(subject)-100], body)
		if strings.HasPrefix(subject, "$JS.ACK.") {
			continue // the request has no answer
		}
		if err != nil || !strings.Contains(string(msg.Data), `"code":400`) {
			t.Errorf("%.50s…: %v, %v", subject, msg, err)
		}
	}
	h.store("weir.dead", 1)
	if _, err := h.stream(h.js, "WEIR_DEAD").CreateConsumer(t.Context(), jetstream.ConsumerConfig{}); err != nil {
		t.Errorf("the next consumer: %v", err)
	}
}
