package connect

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// syncAccounts are an account that imports the question, one that does not, and the system account.
const syncAccounts = `
accounts {
  ASKS {
    jetstream: enabled
    imports: [{service: {account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ"}}]
    users: [
      {user: asks, password: x}
      {user: denied, password: x, permissions: {publish: {deny: "$SYS.REQ.SERVER.PING.JSZ"}}}
    ]
  }
  OTHER { jetstream: enabled, users: [{user: other, password: x}] }
  SYS {
    exports: [{service: "$SYS.REQ.SERVER.PING.JSZ", accounts: [ASKS], response_type: stream}]
    users: [{user: system, password: x}]
  }
}
system_account: SYS
`

// syncServer runs a nats-server with syncAccounts, and returns a function that connects a user.
func syncServer(t *testing.T, jetStream string) func(user string) *Connection {
	t.Helper()
	opts := &server.Options{}
	if err := opts.ProcessConfigString(fmt.Sprintf("server_name: n1\njetstream { store_dir: %q, %s }\n%s", t.TempDir(), jetStream, syncAccounts)); err != nil {
		t.Fatal(err)
	}
	ns := start(t, opts)
	return func(user string) *Connection {
		t.Helper()
		c, err := Open(Address{
			URL: fmt.Sprintf("nats://%s:x@%s", user, ns.Addr()), At: "here", Name: t.Name(), Timeout: await.Patience, Options: []nats.Option{nats.Timeout(await.Patience)},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
}

// TestServerTellsItsSyncing asks a server with either setting, as users with the right and without. A refusal leaves the
// connection open.
func TestServerTellsItsSyncing(t *testing.T) {
	for setting, want := range map[string]Syncing{
		"sync_interval: always":  {Server: "n1", Version: server.VERSION, Always: true, Every: 2 * time.Minute},
		"":                       {Server: "n1", Version: server.VERSION, Every: 2 * time.Minute},
		"sync_interval: \"10s\"": {Server: "n1", Version: server.VERSION, Every: 10 * time.Second},
	} {
		connected := syncServer(t, setting)
		for _, user := range []string{"asks", "system"} {
			c := connected(user)
			servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", nil)
			if err != nil || missing != 0 || !slices.Equal(servers, []Syncing{want}) {
				t.Errorf("%q, as %s: %+v, %d missing, %v", setting, user, servers, missing, err)
			}
		}
		for _, user := range []string{"other", "denied"} {
			c := connected(user)
			servers, _, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", nil)
			if !errors.Is(err, ErrMayNotAsk) || servers != nil {
				t.Errorf("%q, as %s: %+v, %v", setting, user, servers, err)
			}
			if err := c.Conn.Flush(); err != nil || c.Denied.Any() {
				t.Errorf("%q, as %s: the refusal was counted, or ended the connection: %v", setting, user, err)
			}
		}
	}
}

// answerAs answers the question for servers of a cluster, in an account that does not import it. Together with those of
// other clusters there are three servers.
func answerAs(t *testing.T, c *Connection, cluster string, servers ...Syncing) {
	t.Helper()
	const told = `{"server":{"id":%q,"name":%[1]q,"ver":%q,"cluster":%q,"domain":%q},"data":{"config":{"sync_always":%t,"sync_interval":%d},"meta_cluster":{"cluster_size":3}}}`
	answer := func(s Syncing, domain string) []byte {
		return fmt.Appendf(nil, told, s.Server, s.Version, cluster, domain, s.Always, s.Every)
	}
	_, err := c.Conn.Subscribe(SyncRight, func(m *nats.Msg) {
		err := errors.Join(m.Respond([]byte(`{"server":{"id":"9","name":"core"},"data":{"disabled":true}}`)), m.Respond(answer(Syncing{Server: "leaf"}, "leaf")))
		for _, s := range servers {
			err = errors.Join(err, m.Respond(answer(s, "")))
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(err, c.Conn.Flush()); err != nil {
		t.Fatal(err)
	}
}

// TestServersThatAreMissing checks that servers without JetStream and of other domains do not count, and that servers
// with weir's streams are counted that do not answer, or cannot.
func TestServersThatAreMissing(t *testing.T) {
	c := syncServer(t, "")("other")
	up := []Syncing{{"n1", "2.15.2", true, time.Minute}, {"n2", "2.15.0", false, time.Second}}
	answerAs(t, c, "c", up[1], up[0])
	own := []string{"n1", "n2", "n3"}
	servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", own)
	if err != nil || missing != 1 || !slices.Equal(servers, up) {
		t.Errorf("n3 does not answer: %+v, %d missing, %v", servers, missing, err)
	}
	if _, err := c.Conn.Subscribe(SyncRight, func(m *nats.Msg) {
		if err := m.Respond([]byte(`{"server":{"id":"n3","name":"n3","cluster":"c"},"error":{"description":"broken"}}`)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	servers, missing, err = AskSyncing(t.Context(), c.Conn, c.Denied, "", own)
	if err != nil || missing != 1 || !slices.Equal(servers, up) {
		t.Errorf("n3 answers with an error: %+v, %d missing, %v", servers, missing, err)
	}
	if servers, _, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", []string{"n4"}); !errors.Is(err, ErrOthers) {
		t.Errorf("only n4 has weir's streams: %+v, %v", servers, err)
	}
}

// TestOtherClustersAnswer checks that servers of other clusters of a supercluster do not count, neither if they answer
// nor if they do not.
func TestOtherClustersAnswer(t *testing.T) {
	c := syncServer(t, "")("other")
	up := []Syncing{{"n1", "2.15.2", true, time.Minute}, {"n2", "2.15.2", true, time.Second}}
	answerAs(t, c, "near", up...)
	for name, own := range map[string][]string{"all": {"n1", "n2"}, "one": {"n2"}, "that of the connection": nil} {
		servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", own)
		if err != nil || missing != 0 || !slices.Equal(servers, up) {
			t.Errorf("%s, without the other cluster: %+v, %d missing, %v", name, servers, missing, err)
		}
	}
	answerAs(t, c, "far", Syncing{"r1", "2.14.0", false, time.Hour})
	for name, own := range map[string][]string{"all": {"n1", "n2"}, "one": {"n2"}, "that of the connection": nil} {
		servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", own)
		if err != nil || missing != 0 || !slices.Equal(servers, up) {
			t.Errorf("%s, with the other cluster: %+v, %d missing, %v", name, servers, missing, err)
		}
	}
}

// TestOtherServersAnswer checks that answers of other servers than those that store weir's streams do not count: here
// those of servers to which a leaf node connects.
func TestOtherServersAnswer(t *testing.T) {
	c := syncServer(t, "")("other")
	hubs := []Syncing{{"hub1", "2.15.2", true, time.Minute}, {"hub2", "2.15.2", true, time.Minute}}
	answerAs(t, c, "hub", hubs...)
	for _, own := range [][]string{nil, {"n1"}, {"n1", "n2"}} {
		if servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", own); !errors.Is(err, ErrOthers) || servers != nil || missing != 0 {
			t.Errorf("weir's are %v: %+v, %d missing, %v", own, servers, missing, err)
		}
	}
	if servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", []string{"n1", "hub2"}); err != nil || missing != 1 || len(servers) != 2 {
		t.Errorf("a hub is weir's: %+v, %d missing, %v", servers, missing, err)
	}
	alone := Syncing{"n1", "2.15.2", true, time.Second}
	answerAs(t, c, "", alone, Syncing{"another", "2.14.0", false, time.Hour})
	if servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", nil); err != nil || missing != 0 || !slices.Equal(servers, []Syncing{alone}) {
		t.Errorf("a leaf node without a cluster is weir's: %+v, %d missing, %v", servers, missing, err)
	}
	info := &jetstream.ClusterInfo{Leader: "n1", Replicas: []*jetstream.PeerInfo{{Name: "n2"}}}
	if got := ServersOf(info); !slices.Equal(got, []string{"n1", "n2"}) || ServersOf(nil) != nil || ServersOf(&jetstream.ClusterInfo{}) != nil {
		t.Errorf("the servers of a stream are %v", got)
	}
}

// TestKnownLosses checks which versions have which losses although they sync every write.
func TestKnownLosses(t *testing.T) {
	for version, want := range map[string]string{
		"2.14.0": lossByDeletes + "; " + lossByLogs, "2.14.5": lossByDeletes + "; " + lossByLogs, "2.14.6": lossByLogs, "2.14.7": lossByLogs,
		"2.14.8": noKnownLoss, "2.14.10": noKnownLoss, "2.15.0": lossByLogs, "2.15.0-RC.1": lossByLogs, "2.15.1": noKnownLoss,
		"2.15.2": "", "2.15.3": "", "2.16.0": "", "3.0.0": "", "unknown": "",
	} {
		if got := KnownLosses(version); got != want {
			t.Errorf("version %s: %q, want %q", version, got, want)
		}
		if got, untested := Untested(version), want == noKnownLoss || version == "unknown"; got != untested {
			t.Errorf("version %s: untested is %t", version, got)
		}
	}
}

// TestStartWarnsOfOldServers checks that the start warns of a server that syncs every write and has a version with
// known losses, and of no other. A version without a known loss is only noted.
func TestStartWarnsOfOldServers(t *testing.T) {
	c := syncServer(t, "")("other")
	var log bytes.Buffer
	check := &Check{
		Conn: c.Conn, JetStream: c.JetStream, Denied: c.Denied, Settings: &environment.Settings{},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	check.syncs(t.Context(), "") // without the right it knows only the version that the connection tells
	check.mayAskSyncing = true
	check.syncs(t.Context(), "") // the account does not import the question
	if log.Len() > 0 {
		t.Errorf("a server of version %s got %s", server.VERSION, log.String())
	}
	answerAs(t, c, "c", Syncing{"n1", "2.14.3", true, time.Minute}, Syncing{"n2", "2.14.3", false, time.Minute}, Syncing{"n3", "2.15.1", true, time.Minute})
	check.syncs(t.Context(), "")
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "server=n1 version=2.14.3") || !strings.Contains(text, lossByDeletes) {
		t.Errorf("the log: %s", text)
	} else if strings.Count(text, "level=INFO") != 1 || !strings.Contains(text, "server=n3 version=2.15.1") {
		t.Errorf("the log of a version without a known loss: %s", text)
	}
	log.Reset()
	check.Inside = true
	check.syncs(t.Context(), "")
	if log.Len() > 0 {
		t.Errorf("of the server inside another weir: %s", log.String())
	}
}

// TestStartKnowsItsServers checks that the start tells the servers that store weir's streams from others with the right
// to ask.
func TestStartKnowsItsServers(t *testing.T) {
	c := syncServer(t, "")("other")
	var log bytes.Buffer
	check := &Check{
		Conn: c.Conn, JetStream: c.JetStream, Denied: c.Denied, Settings: &environment.Settings{},
		Log: slog.New(slog.NewTextHandler(&log, nil)), mayAskSyncing: true,
	}
	hubs := []Syncing{{"hub1", "2.14.3", true, time.Minute}, {"hub2", "2.14.3", true, time.Minute}, {"hub3", "2.14.3", true, time.Minute}}
	answerAs(t, c, "hub", hubs...)
	if _, err := c.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: ConfigBucket}); err != nil {
		t.Fatal(err)
	}
	if own := check.own(t.Context()); !slices.Equal(own, []string{"n1"}) {
		t.Errorf("weir's servers are %v", own)
	}
	check.syncs(t.Context(), "")
	if log.Len() > 0 {
		t.Errorf("of a hub's servers: %s", log.String())
	}
}
