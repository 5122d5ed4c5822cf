package console

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"golang.org/x/sys/unix"
)

// stranger is a user that is neither root nor the user of the tests.
const stranger = 54321

// dialAs connects as another user. A socket belongs to the user of the thread that created it.
func dialAs(ctx context.Context, t *testing.T, uid int, network, addr string) net.Conn {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(uid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(os.Geteuid()) }()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// askAs sends a request over a connection of another user.
func askAs(t *testing.T, s *Server, uid int, q request) (*http.Response, string) {
	t.Helper()
	ctx := await.Context(t, q.path)
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return dialAs(ctx, t, uid, "tcp", s.Addr()), nil
	}, DisableKeepAlives: true}}
	return askBy(t, client, s, q)
}

// TestOtherUsersAreNoOperators checks the rights on a loopback address without a token. weir's own user may do
// everything. Another user of the machine may do what the embedded server allows: submit jobs and look. A refusal names
// that user, and says what to do.
func TestOtherUsersAreNoOperators(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		s, configured := start(t, listen, "")
		for role, want := range map[Role]int{Anybody: 200, AnyRole: 200, Producer: 200, Viewer: 200, Operator: 403} {
			res, body := askAs(t, s, stranger, request{method: "POST", path: "/api/v1/test/" + string(role)})
			if res.StatusCode != want {
				t.Errorf("at %s another user's request that needs %s is answered %d %s", listen, role, res.StatusCode, body)
			}
			if want == 403 && (!strings.Contains(body, "user 54321") || !strings.Contains(body, "sudo -u") || !strings.Contains(body, "WEIR_HTTP_TOKEN")) {
				t.Errorf("another user is told no more than %s", body)
			}
		}
		for _, path := range []string{"/api/v1/session", "/api/v1/login"} {
			q := request{path: path}
			if path == "/api/v1/login" {
				q.method, q.body = "POST", `{"token": "x"}`
			}
			if _, body := askAs(t, s, stranger, q); !strings.Contains(body, `"role":"local"`) {
				t.Errorf("%s tells another user %s", path, body)
			}
		}
		if res, body := askAs(t, s, os.Geteuid(), request{path: "/api/v1/test/operator"}); res.StatusCode != 200 {
			t.Errorf("at %s whom weir runs as is answered %d %s", listen, res.StatusCode, body)
		}
		configured.Store(named(t, t.TempDir(), ""))
		if res, body := askAs(t, s, stranger, request{path: "/api/v1/test/viewer"}); res.StatusCode != 401 {
			t.Errorf("once a token is configured another user is answered %d %s", res.StatusCode, body)
		}
	}
}

// TestRootIsAnOperator checks that root is an operator even if weir runs as another user. An unknown user, for example
// of a process in a container, does not count as weir's own.
func TestRootIsAnOperator(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", "")
	for _, c := range []struct{ self, uid, want int }{
		{stranger, stranger, 200}, {stranger, 0, 200}, {stranger, stranger + 1, 403}, {overflowUID, overflowUID, 403}, {overflowUID, 0, 200},
	} {
		s.access.self = c.self
		if res, body := askAs(t, s, c.uid, request{path: "/api/v1/test/operator"}); res.StatusCode != c.want {
			t.Errorf("where weir runs as %d, %d is answered %d %s", c.self, c.uid, res.StatusCode, body)
		}
	}
}

// TestWhomTheSettingsLetIn checks that with WEIR_NATS_AUTH=open all clients are operators, and with required none is.
func TestWhomTheSettingsLetIn(t *testing.T) {
	for auth, want := range map[environment.NATSAuth]int{environment.AuthOpen: 200, environment.AuthOperators: 403, environment.AuthRequired: 401} {
		s, _ := startFor(t, "127.0.0.1:0", "", auth)
		if res, body := askAs(t, s, stranger, request{path: "/api/v1/test/operator"}); res.StatusCode != want {
			t.Errorf("with %s another user is answered %d %s", auth, res.StatusCode, body)
		}
	}
}

// TestWhoHasGoneIsNobody checks that a socket that its process has closed has no user, although kernels report root for
// it.
func TestWhoHasGoneIsNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	conn := dialAs(await.Context(t, "a client that goes"), t, stranger, "tcp", l.Addr().String())
	client, server := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
	if uid, known := userOf(client, server); !known || uid != stranger {
		t.Fatalf("the caller is user %d, known %t", uid, known)
	}
	_ = conn.Close() // the other end stays, because nothing accepts it
	if uid, known := userOf(client, server); known {
		t.Errorf("a caller that has gone is user %d", uid)
	}
	if seen, err := readTable(client, server); err != nil || seen.inode != 0 {
		t.Errorf("the socket of a caller that has gone is %+v, %v", seen, err)
	}
}

// TestBothWaysTellTheSame checks that the kernel's table says the same as its answer about which user made a
// connection.
func TestBothWaysTellTheSame(t *testing.T) {
	for _, c := range []struct{ network, listen, dial string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"}, {"tcp6", "[::1]:0", "::1"}, {"tcp4", "127.0.0.1:0", "::ffff:127.0.0.1"},
	} {
		l, err := net.Listen(c.network, c.listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		conn := dialAs(await.Context(t, "a connection"), t, stranger, "tcp", net.JoinHostPort(c.dial, port))
		client, server := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
		for name, ask := range map[string]func(client, server netip.AddrPort) (sight, error){"netlink": askKernel, "table": readTable} {
			got, err := ask(client, server)
			if err != nil || got.uid != stranger || got.inode == 0 {
				t.Errorf("%s says of a connection to %s %+v, %v", name, c.dial, got, err)
			}
			if got, err := ask(server, netip.AddrPortFrom(client.Addr(), 1)); err == nil {
				t.Errorf("%s knows of a connection that is not there: %+v", name, got)
			}
		}
	}
}
