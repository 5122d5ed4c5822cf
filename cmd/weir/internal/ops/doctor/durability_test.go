package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// examineServer examines a nats-server with a setting of JetStream, as one of the users "may" and "other". It returns
// the findings about syncs.
func examineServer(t *testing.T, setting, user string) []Finding {
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
	t.Setenv("WEIR_NATS_URL", fmt.Sprintf("nats://%s:x@%s", user, ns.Addr()))
	s, err := config.ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect.DialAs(s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return slices.DeleteFunc(Examine(t.Context(), Options{Settings: s, Connection: c}), func(f Finding) bool { return !strings.Contains(f.What, "sync") })
}

// TestPowerCutIsForetold examines servers that sync every write and servers that do not, and one that this user may not
// ask.
func TestPowerCutIsForetold(t *testing.T) {
	for _, c := range []struct {
		setting, user, says string
		grade               Grade
	}{
		{"sync_interval: always", "may", "n1: NATS syncs every write before it acknowledges it (sync_interval: always); a power cut loses nothing", Fine},
		{"", "may", "n1: NATS syncs every 2m, and a power cut of one that holds a stream loses up to that much", Watch},
		{"sync_interval: always", "other", `this user may not ask the NATS servers how they sync (publish to "$SYS.REQ.SERVER.PING.JSZ"`, Watch},
	} {
		if found := examineServer(t, c.setting, c.user); len(found) != 1 || !found[0].says(c.grade, c.says) {
			t.Errorf("%q, as %s: found %+v", c.setting, c.user, found)
		}
	}
}

// TestPowerCutOfACluster checks what is said of servers whose settings or versions differ.
func TestPowerCutOfACluster(t *testing.T) {
	always := func(name, version string) connect.Syncing {
		return connect.Syncing{Server: name, Version: version, Always: true}
	}
	late := connect.Syncing{Server: "n3", Version: "2.14.0", Every: 10 * time.Second}
	e := &examination{}
	e.syncing([]connect.Syncing{always("n1", "2.15.0"), always("n2", "2.15.0"), late, always("n4", "2.15.2")}, 3)
	if len(e.findings) != 2 ||
		!e.findings[0].says(Watch, "n3: NATS syncs every 10s, and a power cut of all that hold the 3 copies of a stream loses up to that much") ||
		!e.findings[1].says(Watch, "n1, n2: NATS 2.15.0 has sync_interval: always, but when it shortens") {
		t.Errorf("found %+v", e.findings)
	}
}
