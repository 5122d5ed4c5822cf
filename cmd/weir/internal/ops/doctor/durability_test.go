package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// serveSyncing runs a nats-server with a setting of JetStream and the users "may" and "other". It returns a function
// that returns the address of a user.
func serveSyncing(t *testing.T, setting string) (url func(user string) string) {
	t.Helper()
	opts := &server.Options{}
	err := opts.ProcessConfigString(fmt.Sprintf(`
server_name: n1
jetstream { store_dir: %q, %s }
accounts {
  WEIR { jetstream: enabled, imports: [{service: {account: SYS, subject: %q}}], users: [{user: may, password: x}] }
  OTHER { jetstream: enabled, users: [{user: other, password: x}] }
  SYS { exports: [{service: %[3]q, accounts: [WEIR], response_type: stream}] }
}
system_account: SYS
`, t.TempDir(), setting, connect.SyncRight))
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	ns, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); await.Return(t, "the end of the server", ns.WaitForShutdown) })
	if !ns.ReadyForConnections(await.Patience) {
		t.Fatal("the nats-server did not start")
	}
	return func(user string) string { return fmt.Sprintf("nats://%s:x@%s", user, ns.Addr()) }
}

// answering answers requests on a subject in the account of other.
func answering(t *testing.T, url, subject, answer string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		if err := m.Respond([]byte(answer)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return nc
}

// examineAt examines a nats-server, and returns the findings about syncs and power cuts.
func examineAt(t *testing.T, url string) []Finding {
	t.Helper()
	t.Setenv("WEIR_NATS_URL", url)
	s, err := environment.Read()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect.DialAs(s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return slices.DeleteFunc(Examine(t.Context(), Options{Settings: s, Connection: c}), func(f Finding) bool {
		return !strings.Contains(f.What, "sync") && !strings.Contains(f.What, "power cut")
	})
}

// TestPowerCutIsForetold examines servers that sync every write and servers that do not, and one that this user may not
// ask.
func TestPowerCutIsForetold(t *testing.T) {
	for _, c := range []struct {
		setting, user, says string
		grade               Grade
	}{
		{"sync_interval: always", "may", "n1: NATS syncs every write before it acknowledges it (sync_interval: always); a power cut loses nothing", Fine},
		{"", "may", "n1: NATS syncs every 2m, and a power cut may lose up to that much", Watch},
		{"sync_interval: always", "other", `this user may not ask the NATS servers how they sync (publish to "$SYS.REQ.SERVER.PING.JSZ"`, Watch},
	} {
		if found := examineAt(t, serveSyncing(t, c.setting)(c.user)); len(found) != 1 || !found[0].says(c.grade, c.says) {
			t.Errorf("%q, as %s: found %+v", c.setting, c.user, found)
		}
	}
}

// TestPowerCutOfOtherServers checks that nothing is foretold by the answers of servers that do not store weir's streams,
// as those to which a leaf node connects.
func TestPowerCutOfOtherServers(t *testing.T) {
	url := serveSyncing(t, "")("other")
	nc := answering(t, url, connect.SyncRight, `{"server":{"id":"1","name":"hub1","ver":"2.15.2"},"data":{"config":{"sync_always":true},"meta_cluster":{"cluster_size":1}}}`)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const says = "whether a power cut would lose anything is not known: the NATS servers that store weir's streams do not say how they sync"
	if found := examineAt(t, url); len(found) != 1 || !found[0].says(Watch, says) {
		t.Errorf("before weir has run: %+v", found)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: connect.ConfigBucket}); err != nil {
		t.Fatal(err)
	}
	if found := examineAt(t, url); len(found) != 1 || !found[0].says(Watch, says) {
		t.Errorf("with weir's stream: %+v", found)
	}
}

// TestClockWithoutLeader checks that a stream without a leader is not taken for a lack of rights. The requests reach
// the server through another subject, where the leader is taken out of the answers.
func TestClockWithoutLeader(t *testing.T) {
	nc := answering(t, serveSyncing(t, "")("other"), "electing.STREAM.INFO.KV_"+connect.ConfigBucket,
		`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"KV_weir_config"},"cluster":{"name":"c"}}`)
	electing, err := jetstream.NewWithAPIPrefix(nc, "electing")
	if err != nil {
		t.Fatal(err)
	}
	e := &examination{Options: Options{Connection: &connect.Connection{JetStream: stream.FromLeader(electing), At: "here"}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if of := e.clocks(ctx); of != nil || len(e.findings) != 1 || !e.findings[0].says(Watch, "no leader answers for weir's configuration at here") {
		t.Errorf("found %+v", e.findings)
	}
}

// TestPowerCutOfAnotherWeir checks that the server inside another weir is told apart: no fix of its settings is advised.
func TestPowerCutOfAnotherWeir(t *testing.T) {
	url := serveSyncing(t, "")("other")
	answering(t, url, connect.Whereabouts, `{"operator_creds":"/nowhere","reply_prefix":"weir.reply."}`)
	found := examineAt(t, url)
	if len(found) != 1 || found[0].Grade != Fine || !strings.Contains(found[0].What, "is the one inside another weir: its WEIR_DURABILITY says what a power cut loses") {
		t.Errorf("found %+v", found)
	}
}

// TestPowerCutOfACluster checks what is said of servers whose settings or versions differ.
func TestPowerCutOfACluster(t *testing.T) {
	always := func(name, version string) connect.Syncing {
		return connect.Syncing{Server: name, Version: version, Always: true}
	}
	late := connect.Syncing{Server: "n3", Version: "2.14.0", Every: 10 * time.Second}
	e := &examination{}
	e.syncing([]connect.Syncing{always("n1", "2.15.0"), always("n2", "2.15.0"), late, always("n4", "2.15.2")}, 0, 3)
	if len(e.findings) != 2 ||
		!e.findings[0].says(Watch, "n3: NATS syncs every 10s, and a power cut of several that hold a copy of a stream, or of one while another is behind or cut off, loses up to that much") ||
		!e.findings[1].says(Watch, "n1, n2: NATS 2.15.0 has sync_interval: always, but when it shortens") {
		t.Errorf("found %+v", e.findings)
	}
	e = &examination{}
	e.syncing([]connect.Syncing{always("n1", "2.15.1"), always("n2", "2.15.2")}, 0, 3)
	if len(e.findings) != 1 || !e.findings[0].says(Fine, "n1, n2: NATS syncs every write before it acknowledges it (sync_interval: always); "+
		"no loss is known of NATS 2.15.1, but weir is tested with 2.15.2") {
		t.Errorf("of a version without a known loss: %+v", e.findings)
	}
	e = &examination{}
	e.syncing([]connect.Syncing{always("n1", "built here"), always("n2", "2.15.2")}, 0, 3)
	if len(e.findings) != 1 || !e.findings[0].says(Fine, "n1, n2: NATS syncs every write before it acknowledges it (sync_interval: always); "+
		"no loss is known of NATS built here, but weir is tested with 2.15.2") {
		t.Errorf("of a version that cannot be read: %+v", e.findings)
	}
	e = &examination{}
	e.syncing([]connect.Syncing{late}, 0, 1)
	if len(e.findings) != 1 || !e.findings[0].says(Watch, "n3: NATS syncs every 10s, and a power cut of one that holds a stream loses up to that much") {
		t.Errorf("of one copy: %+v", e.findings)
	}
	e = &examination{}
	e.syncing([]connect.Syncing{always("n1", "2.15.2")}, 2, 3)
	if len(e.findings) != 2 || !e.findings[0].says(Watch, "2 of 3 NATS servers with JetStream did not say") || strings.Contains(e.findings[1].What, "loses nothing") {
		t.Errorf("of one server among three: %+v", e.findings)
	}
}
