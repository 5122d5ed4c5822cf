package admin

import (
	"errors"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// TestSilenceAfterAnAnswer checks that the answers that came are used if another replica is silent, even if the asking
// process waits as long for the next answer as for the first.
func TestSilenceAfterAnAnswer(t *testing.T) {
	t.Parallel()
	nc := natstest.JetStream(t).Conn()
	for _, answers := range []int{0, 1} {
		sub, err := nc.Subscribe("asked", func(m *nats.Msg) {
			if answers > 0 {
				_ = m.Respond(nil)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = askFor(&connect.Connection{Conn: nc}, "asked", nil, answerWaits{time.Second, time.Second}, func([]byte, *operatorError) bool {
			n++
			return false
		})
		if n != answers || errors.Is(err, errSilent) != (answers == 0) {
			t.Errorf("%d answers came, want %d: %v", n, answers, err)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}
