package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// guarded are two servers that authenticate every client: one by a user's key, or name and password; one by a client
// certificate.
type guarded struct {
	t                 *testing.T
	dir               string // of all files
	byName, byCert    string // addresses
	seed, cert, other string // paths: a user's key, his certificate, that of a stranger
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t, dir: t.TempDir()}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	g.seed = g.write("weir.nk", string(seed)+"\n")
	here := servers.SelfSigned(t, filepath.Join(g.dir, "server.pem"), "127.0.0.1")
	g.cert, g.other = servers.SelfSigned(t, filepath.Join(g.dir, "client.pem"), "weir"), servers.SelfSigned(t, filepath.Join(g.dir, "other.pem"), "weir")
	g.byName = "nats://" + g.start(fmt.Sprintf("authorization {users: [{nkey: %s}, {user: weir, password: %s}]}", public, secretText))
	g.byCert = "tls://" + g.start(fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}", here, here+".key", g.cert))
	return g
}

// secretText is a password that nothing may show.
const secretText = "hunter2-hunter2"

func (g *guarded) start(conf string) (address string) {
	g.t.Helper()
	path := g.write("nats.conf", fmt.Sprintf("jetstream {store_dir: %q}\n%s\n", g.t.TempDir(), conf))
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		g.t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	return servers.StartNATS(g.t, opts).Addr().String()
}

// write makes a file that only its user may read, and gives its path.
func (g *guarded) write(name, text string) string {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// TestSignIn: weir and its commands sign in to a server by all that the nats command signs in by: a user's key, name and password, a
// certificate, and a context that says so.
func TestSignIn(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	g.write("nats/context/key.json", fmt.Sprintf(`{"description": "", "url": %q, "nkey": %q, "creds": "", "color_scheme": ""}`, g.byName, g.seed))
	g.write("nats/context/name.json", fmt.Sprintf(`{"url": %q, "user": "weir", "password": %q, "nkey": "/passed/over"}`, g.byName, secretText))
	g.write("nats/context/cert.json", fmt.Sprintf(`{"url": %q, "cert": "$HERE/client.pem", "key": "file://%s/client.pem.key", "ca": %q}`,
		g.byCert, g.dir, g.dir+"/server.pem"))
	password := g.write("password", secretText+"\n")
	for name, c := range map[string]struct {
		env   map[string]string
		start bool // a worker, too
	}{
		"a user's key": {env: map[string]string{"WEIR_NATS_URL": g.byName, "WEIR_NATS_NKEY": g.seed}, start: true},
		"a name, and a password in a file": {env: map[string]string{
			"WEIR_NATS_URL": g.byName, "WEIR_NATS_USER": "weir", "WEIR_NATS_PASSWORD": "${file:" + password + "}",
		}, start: true},
		"a certificate": {env: map[string]string{
			"WEIR_NATS_URL": g.byCert, "WEIR_NATS_CA": g.dir + "/server.pem", "WEIR_NATS_CERT": g.cert, "WEIR_NATS_KEY": g.cert + ".key",
		}, start: true},
		"a context with a key":               {env: map[string]string{"WEIR_NATS_CONTEXT": "key"}},
		"a context with a name":              {env: map[string]string{"WEIR_NATS_CONTEXT": "name"}},
		"a context with a certificate":       {env: map[string]string{"WEIR_NATS_CONTEXT": "cert"}, start: true},
		"a variable in place of a context's": {env: map[string]string{"WEIR_NATS_CONTEXT": "name", "WEIR_NATS_NKEY": g.seed}},
	} {
		t.Run(name, func(t *testing.T) {
			c.env["HERE"], c.env["XDG_CONFIG_HOME"] = g.dir, g.dir
			var env []string
			for name, text := range c.env {
				env = append(env, name+"="+text)
			}
			if !c.start { // without rights, weir would not be told that nothing was ever configured here
				if got := program.Command(t, env, "dead", "ls"); got.Code != cli.ExitNotFound {
					t.Errorf("weir dead ls ended with %+v", got)
				}
				return
			}
			r := weirtest.ReadyRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, "apis:\n  pay: {url: %s, bucket: {rate: 100/s, capacity: 9}}\n")
			s := program.ExternalSettingsWith(t, c.env["WEIR_NATS_URL"], r.Settings().Config, c.env)
			w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := program.Command(t, env, "submit", "pay", "k", "--data", "x", "--wait"); got.Code != 0 {
				t.Errorf("weir submit ended with %+v", got)
			}
			w.Stop()
			if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSignInRefused: errors name the variable or the file that is wrong, and no secret.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	for name, text := range map[string]string{
		"text": "no json: " + secretText, "nsc": `{"nsc": "nsc://o/a/u"}`, "domain": `{"jetstream_domain": "hub"}`, "gone": `{"creds": "/no/such/file"}`,
		"vault": `{"creds": "op://vault/` + secretText + `/creds"}`, "seed": `{"nkey": "` + g.write("none", secretText) + `"}`,
		"wrong": fmt.Sprintf(`{"url": %q, "user": "weir", "password": "wrong-%s"}`, g.byName, secretText),
	} {
		g.write("nats/context/"+name+".json", text)
	}
	contexts := filepath.Join(g.dir, "nats", "context")
	for _, c := range []struct {
		env  []string
		code int
		says []string
	}{
		{[]string{"WEIR_NATS_CONTEXT=none"}, cli.ExitUsage, []string{"WEIR_NATS_CONTEXT", contexts + "/none.json cannot be read: no such file", "nats context ls"}},
		{[]string{"WEIR_NATS_CONTEXT=../weir"}, cli.ExitUsage, []string{"no name of a context"}},
		{[]string{"WEIR_NATS_CONTEXT=text"}, cli.ExitUsage, []string{contexts + "/text.json is not a JSON object"}},
		{[]string{"WEIR_NATS_CONTEXT=nsc"}, cli.ExitUsage, []string{contexts + "/nsc.json says nsc, which weir does not go by"}},
		{[]string{"WEIR_NATS_CONTEXT=domain"}, cli.ExitUsage, []string{"jetstream_domain"}},
		{[]string{"WEIR_NATS_CONTEXT=gone"}, cli.ExitUsage, []string{"creds in " + contexts + "/gone.json: the file cannot be read: no such file"}},
		{[]string{"WEIR_NATS_CONTEXT=vault"}, cli.ExitUsage, []string{"creds in " + contexts + "/vault.json: weir does not read op references"}},
		{[]string{"WEIR_NATS_CONTEXT=seed"}, cli.ExitUnreachable, []string{"nkey in the context seed (WEIR_NATS_CONTEXT): " + g.dir + "/none has no user's nkey seed"}},
		{[]string{"WEIR_NATS_CONTEXT=wrong"}, cli.ExitUnreachable, []string{"refused the credentials"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_NKEY=" + g.dir + "/none"}, cli.ExitUnreachable, []string{"WEIR_NATS_NKEY: " + g.dir + "/none has no user's"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_CREDS=" + g.dir + "/none"}, cli.ExitUnreachable, []string{"WEIR_NATS_CREDS: " + g.dir + "/none is no credentials file"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_NKEY=/no/" + secretText}, cli.ExitUsage, []string{"WEIR_NATS_NKEY: the file cannot be read"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_NKEY=" + g.seed, "WEIR_NATS_USER=weir"}, cli.ExitUsage, []string{"several ways to sign in"}},
		{[]string{"WEIR_NATS_URL=nats://a@" + strings.TrimPrefix(g.byName, "nats://"), "WEIR_NATS_NKEY=" + g.seed}, cli.ExitUsage, []string{"no user in WEIR_NATS_URL"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_PASSWORD=" + secretText}, cli.ExitUsage, []string{"set WEIR_NATS_USER"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_USER=weir", "WEIR_NATS_PASSWORD=${file:/no/such}"}, cli.ExitUsage, []string{"WEIR_NATS_PASSWORD: file /no/such cannot be read"}},
		{[]string{"WEIR_NATS_URL=" + g.byName, "WEIR_NATS_USER=weir", "WEIR_NATS_PASSWORD=other-" + secretText}, cli.ExitUnreachable, []string{"refused the credentials"}},
		{[]string{"WEIR_NATS_URL=" + g.byCert, "WEIR_NATS_CA=" + g.dir + "/server.pem"}, cli.ExitUnreachable, []string{"WEIR_NATS_CERT and WEIR_NATS_KEY"}},
		{[]string{"WEIR_NATS_URL=" + g.byCert, "WEIR_NATS_CA=" + g.dir + "/server.pem", "WEIR_NATS_CERT=" + g.cert}, cli.ExitUsage, []string{"set both"}},
		{
			[]string{"WEIR_NATS_URL=" + g.byCert, "WEIR_NATS_CA=" + g.dir + "/server.pem", "WEIR_NATS_CERT=" + g.other, "WEIR_NATS_KEY=" + g.other + ".key"},
			cli.ExitUnreachable,
			[]string{"WEIR_NATS_CERT and WEIR_NATS_KEY"},
		},
		{
			[]string{"WEIR_NATS_URL=" + g.byCert, "WEIR_NATS_CA=" + g.dir + "/server.pem", "WEIR_NATS_CERT=" + g.cert, "WEIR_NATS_KEY=" + g.other + ".key"},
			cli.ExitUnreachable,
			[]string{"WEIR_NATS_CERT and WEIR_NATS_KEY: ", g.cert + " and " + g.other + ".key are no certificate and its key"},
		},
	} {
		got := program.Command(t, append(c.env, "XDG_CONFIG_HOME="+g.dir), "dead", "ls")
		if got.Code != c.code {
			t.Errorf("%v: weir ended with %+v", c.env, got)
		}
		for _, says := range c.says {
			if !strings.Contains(got.Stderr, says) {
				t.Errorf("%v: weir did not say %q: %s", c.env, says, got.Stderr)
			}
		}
		if strings.Contains(got.Stdout+got.Stderr, secretText) {
			t.Errorf("%v: a secret is shown: %s", c.env, got.Stderr)
		}
	}
}
