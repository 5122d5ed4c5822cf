package jobs

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestToleranceIsOfASubject: while the refusal of one request is tolerated, the refusal of another one is still
// reported.
func TestToleranceIsOfASubject(t *testing.T) {
	t.Parallel()
	as := servers.RoleServer(t, filepath.Join(weirtest.Repository, "deploy", "nats", "accounts.conf"))
	open := func() *connect.Connection {
		c, err := connect.Open(connect.Address{URL: as("producer"), At: "the test's server", Timeout: weirtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	publish := func(c *connect.Connection, subject string) {
		if err := c.Conn.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	const may, must = "$SRV.PING.weir", "weir.operator.status"
	c := open()
	tolerant, done := c.Denied.Tolerate(t.Context(), may)
	publish(c, may)
	await.Receive(t, "the end of what may be refused", tolerant.Done())
	done()
	if c.Conn.IsClosed() || c.Denied.Any() {
		t.Error("what may be refused has ended the connection")
	}
	c = open()
	closed := make(chan struct{})
	c.Conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
	tolerant, done = c.Denied.Tolerate(t.Context(), may)
	defer done()
	publish(c, must)
	await.Receive(t, "the end of the connection", closed)
	if err := c.Explain(nats.ErrConnectionClosed); tolerant.Err() != nil || !strings.Contains(err.Error(), must) {
		t.Errorf("the refusal of %s is told as %v, and the question that may be refused ends with %v", must, err, tolerant.Err())
	}
}
