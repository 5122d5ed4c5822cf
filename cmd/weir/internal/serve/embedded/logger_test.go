package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestOutdatedIndexIsToldOnce checks that the server's warnings about its index after a kill -9 become one line that is
// no warning. All other warnings are logged.
func TestOutdatedIndexIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
	l.Warnf("Filestore [WEIR_sms_0] Stream state outdated, last block has additional entries, will rebuild")
	l.Warnf("Filestore [WEIR_sms_1] Stream state detected prior state, could not locate msg block %d", 1)
	l.Warnf("Filestore [WEIR_sms_1] Recovering stream state from index errored: %v", "prior state file")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO") || !strings.Contains(got, "rebuilding its index from the messages") {
		t.Errorf("an outdated index is told as\n%s", got)
	}
	out.Reset()
	l.Warnf("Plaintext passwords detected, use nkeys or bcrypt")
	if out.Len() > 0 {
		t.Errorf("the unused password is reported as\n%s", out.String())
	}
	l.Warnf("Filestore [WEIR_sms_0] indexCacheBuf corrupt state in %s", "1.blk")
	l.Warnf("Filestore [WEIR_sms_0] Recovering stream state from index errored: %v", "corrupt state file")
	l.Warnf("JetStream resource limits exceeded for server")
	if got := out.String(); strings.Count(got, "level=WARN") != 3 {
		t.Errorf("three warnings are told as\n%s", got)
	}
}

// TestStrangersDoNotFillTheLog checks that thousands of forbidden publishes and subscriptions become one line of each
// kind, and later a number.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	var lines countedLines
	o := options(t, "127.0.0.1:0", t.TempDir())
	o.Auth, o.Log = Operators, slog.New(slog.NewTextHandler(&lines, nil))
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(await.Patience), nats.Name("job"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	const times = 500
	for i := range times {
		if err := nc.Publish(fmt.Sprintf("orders.%d", i), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.SubscribeSync(fmt.Sprintf("$JS.%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := lines.about("Violation"); n != 2 {
		t.Errorf("%d forbidden publishes and as many subscriptions are %d lines", times, n)
	}
	if lines.about("level=ERROR") != 0 {
		t.Errorf("what clients may not do is told as an error of weir:\n%s", lines.String())
	}
}

// TestMoreOfAKindIsCounted checks that suppressed lines are reported as a number.
func TestMoreOfAKindIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines countedLines
		l := &logger{log: slog.New(slog.NewTextHandler(&lines, nil))}
		for i := range 7 {
			l.Errorf(`127.0.0.1:%d - cid:%d - "v1.55.0:go:job %d" - Publish Violation - Nkey "U%d", Subject "a.%d"`, i, i, i, i, i)
			l.Errorf("JetStream failed to store a msg on stream 'x'")
		}
		<-time.After(3 * kindsEvery) // in virtual time
		synctest.Wait()
		if lines.about("Publish Violation") != 2 || lines.about("count=6") != 1 || lines.about("failed to store") != 7 {
			t.Errorf("told as\n%s", lines.String())
		}
		l.Errorf(`127.0.0.1:1 - cid:1 - Publish Violation - Nkey "U", Subject "a"`)
		if lines.about("Publish Violation") != 3 {
			t.Errorf("later a line of the kind is not logged again:\n%s", lines.String())
		}
		<-time.After(2 * kindsEvery)
	})
}

// countedLines is a log that is safe to write and read at the same time.
type countedLines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (c *countedLines) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Write(p)
}

func (c *countedLines) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

func (c *countedLines) about(text string) (n int) {
	for line := range strings.Lines(c.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
