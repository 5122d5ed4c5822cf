package embedded

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestNamesOfConsumersAreJSON: the server allows control characters in a consumer's name. A list of names with one of
// them is an answer in JSON, and the gate answers the next question.
func TestNamesOfConsumersAreJSON(t *testing.T) {
	h := newHouse(t)
	const name = "a\x7f\x01\v"
	config, err := json.Marshal(map[string]any{
		"stream_name": "WEIR_DEAD", "config": map[string]string{"name": name, "durable_name": name, "ack_policy": "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	subject := "$JS.API.CONSUMER.CREATE.WEIR_DEAD." + name
	made, err := h.anybody.RequestWithContext(await.Context(t, "the consumer"), subject, config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		names := h.stream(h.js, "WEIR_DEAD").ConsumerNames(t.Context())
		var told []string
		for n := range names.Name() {
			told = append(told, n)
		}
		if len(told) != 1 || told[0] != name || names.Err() != nil {
			t.Errorf("the names are %q: %v; the consumer: %s", told, names.Err(), made.Data)
		}
	}
}

// TestConsumersOfReadersEnd: the server makes a negative threshold 0, which on a durable consumer means for ever.
func TestConsumersOfReadersEnd(t *testing.T) {
	h := newHouse(t)
	for name, idle := range map[string]string{
		"none": "", "zero": `,"inactive_threshold":0`, "negative": `,"inactive_threshold":-1`,
		"long": `,"inactive_threshold":864000000000000`,
	} {
		config := `{"stream_name":"WEIR_DEAD","config":{"durable_name":"` + name + `","ack_policy":"none"` + idle + `}}`
		subject := "$JS.API.CONSUMER.DURABLE.CREATE.WEIR_DEAD." + name
		answer, err := h.anybody.RequestWithContext(await.Context(t, name), subject, []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.stream(h.operators, "WEIR_DEAD").Consumer(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, answer.Data)
		}
		if got := c.CachedInfo().Config.InactiveThreshold; got <= 0 || got > 24*time.Hour {
			t.Errorf("the consumer with the threshold %s ends after %v", name, got)
		}
	}
}

// TestNoFormAcknowledgesForAnother: a server takes acknowledgements in two forms of subject, and the longer one has
// other tokens where the shorter one has the stream and the consumer.
func TestNoFormAcknowledgesForAnother(t *testing.T) {
	h := newHouse(t)
	h.store("weir.results.pay", 1)
	own, err := h.stream(h.operators, "WEIR_RESULTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := own.Next(jetstream.FetchContext(await.Context(t, "a result")))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte(mainAccount))
	for i, b := range hash[:8] {
		hash[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[b%62]
	}
	longer := strings.Replace(m.Reply(), "$JS.ACK.", "$JS.ACK._."+string(hash[:8])+".", 1)
	for _, subject := range []string{m.Reply(), m.Reply() + ".x", longer, longer + ".x"} {
		if err := errors.Join(h.anybody.Publish(subject, []byte("+TERM")), h.anybody.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	// The gate takes one question after the other.
	if _, err := h.stream(h.js, "WEIR_EVENTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{}); err != nil {
		t.Fatal(err)
	}
	if info, err := own.Info(t.Context()); err != nil || info.NumAckPending != 1 {
		t.Errorf("a reader acknowledged an operator's message: %+v %v", info, err)
	}
	// The longer form is the server's.
	if _, err := h.operator.RequestWithContext(await.Context(t, "the operator's acknowledgement"), longer, nil); err != nil {
		t.Errorf("%s acknowledges nothing: %v", longer, err)
	}
}
