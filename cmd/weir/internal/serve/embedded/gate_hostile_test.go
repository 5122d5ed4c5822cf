package embedded

import (
	"encoding/json"
	"testing"
	"time"

	"weir/ingest/await"
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
	made, err := h.anybody.RequestWithContext(await.Context(t, "the consumer"), "$JS.API.CONSUMER.CREATE.WEIR_DEAD."+name, config)
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
