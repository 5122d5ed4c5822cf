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

// TestNamesOfConsumersAreJSON checks that a list of consumers' names is valid JSON even if a name has control
// characters, which the server allows. The gate then answers the next request.
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

// TestConsumersOfReadersEnd checks that consumers of readers end even if a request has a negative inactive_threshold.
// The server treats that as 0, which for a durable consumer means that it never ends.
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

// TestNoFormAcknowledgesForAnother checks that a reader cannot acknowledge for another user in either form of the
// subject. The longer form has other tokens in the place of the stream and the consumer.
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
	// The gate handles one request after the other.
	if _, err := h.stream(h.js, "WEIR_EVENTS").CreateConsumer(t.Context(), jetstream.ConsumerConfig{}); err != nil {
		t.Fatal(err)
	}
	if info, err := own.Info(t.Context()); err != nil || info.NumAckPending != 1 {
		t.Errorf("a reader acknowledged an operator's message: %+v %v", info, err)
	}
	// The server itself accepts the longer form.
	if _, err := h.operator.RequestWithContext(await.Context(t, "the operator's acknowledgement"), longer, nil); err != nil {
		t.Errorf("%s acknowledges nothing: %v", longer, err)
	}
}
