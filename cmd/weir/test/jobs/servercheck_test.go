package jobs

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/internal/serve/worker"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// TestStartSaysWhatIsWrongWithTheServer starts a worker on servers that will not do, and wants the reason and its fix.
func TestStartSaysWhatIsWrongWithTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, here := servers.SelfSigned(t, filepath.Join(dir, "other.pem"), "weir.example.com"), servers.SelfSigned(t, filepath.Join(dir, "here.pem"), "127.0.0.1")
	for name, c := range map[string]struct {
		conf     string            // of the server
		env      map[string]string // of the worker
		host     string            // to connect by
		user     string
		file     string // more of the configuration
		contains []string
	}{
		"no JetStream":                   {conf: "", contains: []string{"JetStream is not enabled at", "nats-server with -js"}},
		"not for this account":           {conf: "jetstream {store_dir: \"%s\"}\naccounts {A {users: [{user: u, password: p}]}}\n", user: "u:p@", contains: []string{"not enabled for this account", "jetstream: enabled"}},
		"one server, three replicas":     {conf: "jetstream {store_dir: \"%s\"}", env: map[string]string{"WEIR_REPLICAS": "3"}, contains: []string{"WEIR_REPLICAS=1"}},
		"messages too short for results": {conf: "jetstream {store_dir: \"%s\"}\nmax_payload: 330000", file: "results: {max_body: 300KiB}\n", contains: []string{"results.max_body", "max_payload: 372736", "max_body to 264464"}},
		"messages too short":             {conf: "jetstream {store_dir: \"%s\"}\nmax_payload: 200000", contains: []string{"api pay", "max_payload: 327680", "max_body to 134464"}},
		"a wrong password":               {conf: "authorization {user: u, password: p}", user: "u:wrong@", contains: []string{"refused the credentials", "WEIR_NATS_CREDS"}},
		"no password":                    {conf: "authorization {user: u, password: p}", contains: []string{"refused the credentials"}},
		"too few streams":                {conf: "jetstream {store_dir: \"%s\"}\naccounts {A {jetstream {max_streams: 9}, users: [{user: u, password: p}]}}\n", user: "u:p@", contains: []string{"may have 9 streams", "needs 15 more", "max_streams"}},
		"an unknown authority":           {conf: "tls {cert_file: " + here + ", key_file: " + here + ".key}", host: "tls://", contains: []string{"signed by an authority that this machine does not know", "WEIR_NATS_CA"}},
		"a certificate of another":       {conf: "tls {cert_file: " + ca + ", key_file: " + ca + ".key}", env: map[string]string{"WEIR_NATS_CA": ca}, contains: []string{"certificate for other names"}},
		"TLS wanted, none there":         {conf: "jetstream {store_dir: \"%s\"}", host: "tls://", contains: []string{"does not speak TLS", "nats://"}},
		"credentials that are none":      {conf: "jetstream {store_dir: \"%s\"}", env: map[string]string{"WEIR_NATS_CREDS": ca}, contains: []string{"WEIR_NATS_CREDS", "credentials file"}},
		"another's stream in the way":    {conf: "jetstream {store_dir: \"%s\"}", env: map[string]string{"TEST_STREAM": "weir.results.>"}, contains: []string{"THEIRS (subjects weir.results.>) in the way", "another stream takes subjects"}},
		"a disk without so much room":    {conf: "jetstream {store_dir: \"%s\", max_file_store: 1M}", contains: []string{"no room for this stream", "max_file_store"}},
		"an account that may not store":  {conf: "jetstream {store_dir: \"%s\"}\naccounts {A {jetstream {max_mem: 1M, max_file: 0}, users: [{user: u, password: p}]}}\n", user: "u:p@", contains: []string{"may store nothing on disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf, file := filepath.Join(t.TempDir(), "nats.conf"), filepath.Join(t.TempDir(), "weir.yaml")
			text := c.conf
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, t.TempDir())
			}
			weirtest.WriteFile(t, conf, text+"\n")
			weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n"+c.file)
			opts, err := server.ProcessConfigFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
			ns := servers.StartNATS(t, opts)
			if c.host == "" {
				c.host = "nats://"
			}
			url := c.host + c.user + ns.Addr().String()
			if subject := c.env["TEST_STREAM"]; subject != "" {
				servers.Occupy(t, url, subject)
			}
			s := program.ExternalSettingsWith(t, url, file, c.env)
			w, err := worker.Start(await.Context(t, "a worker to start"), s, weirtest.TestLog(t))
			if err == nil {
				w.Stop()
				_ = await.Result(t, "the end of the worker", w.Wait)
				t.Fatal("the worker starts")
			}
			for _, want := range c.contains {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "wrong@") || strings.Contains(err.Error(), ":p@") {
				t.Errorf("a password is shown: %v", err)
			}
		})
	}
}

// TestStreamsGetTheRoomTheAccountHas: an account with less room than the letters are to have is used as far as it goes.
func TestStreamsGetTheRoomTheAccountHas(t *testing.T) {
	t.Parallel()
	conf, file := filepath.Join(t.TempDir(), "nats.conf"), filepath.Join(t.TempDir(), "weir.yaml")
	weirtest.WriteFile(t, conf, fmt.Sprintf("jetstream {store_dir: \"%s\"}\naccounts {A {jetstream {max_file: 1G}, users: [{user: u, password: p}]}}\n", t.TempDir()))
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n")
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	ns := servers.StartNATS(t, opts)
	w, err := worker.Start(await.Context(t, "a worker to start"), program.ExternalSettings(t, "nats://u:p@"+ns.Addr().String(), file, "w"), weirtest.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
}
