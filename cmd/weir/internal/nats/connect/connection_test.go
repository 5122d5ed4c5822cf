package connect

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"weir/bucket/stream"
)

// TestOwnAddress checks that commands find the server inside weir, whatever interface it listens on.
func TestOwnAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:4222": DefaultURL, "127.0.0.1:5222": "nats://127.0.0.1:5222", "0.0.0.0:4333": "nats://127.0.0.1:4333",
		":4333": "nats://127.0.0.1:4333", "[::]:4333": "nats://127.0.0.1:4333", "[::1]:4333": "nats://[::1]:4333",
		"weir.local:4333": "nats://weir.local:4333", "127.0.0.1:0": DefaultURL, "": DefaultURL,
	} {
		if got := listening(listen); got != want {
			t.Errorf("a server that listens on %q is looked for at %s, want %s", listen, got, want)
		}
	}
}

// TestNoLeaderIsExplained checks that a command that finds a stream without a leader says what to do.
func TestNoLeaderIsExplained(t *testing.T) {
	c := &Connection{At: "here", Denied: &Denials{}}
	err := c.Explain(fmt.Errorf("stream WEIR_DEAD: %w: %w", stream.ErrNoLeader, context.DeadlineExceeded))
	if text := err.Error(); !strings.Contains(text, "start the NATS servers that do not run") || !strings.Contains(text, "WEIR_DEAD") {
		t.Error(text)
	}
}
