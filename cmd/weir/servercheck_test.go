package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/worker"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestStartSaysWhatIsWrongWithTheServer starts a worker on servers that will not do, and wants the reason and its fix.
func TestStartSaysWhatIsWrongWithTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, here := selfSigned(t, filepath.Join(dir, "other.pem"), "weir.example.com"), selfSigned(t, filepath.Join(dir, "here.pem"), "127.0.0.1")
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
		"an unknown authority":           {conf: "tls {cert_file: " + here + ", key_file: " + here + ".key}", host: "tls://", contains: []string{"signed by nobody", "WEIR_NATS_CA"}},
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
			writeFile(t, conf, text+"\n")
			writeFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n"+c.file)
			opts, err := server.ProcessConfigFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
			ns := startNATS(t, opts)
			if c.host == "" {
				c.host = "nats://"
			}
			url := c.host + c.user + ns.Addr().String()
			if subject := c.env["TEST_STREAM"]; subject != "" {
				occupy(t, url, subject)
			}
			s := externalSettingsWith(t, url, file, c.env)
			w, err := worker.Start(await.Context(t, "a worker to start"), s, testLog(t))
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
	writeFile(t, conf, fmt.Sprintf("jetstream {store_dir: \"%s\"}\naccounts {A {jetstream {max_file: 1G}, users: [{user: u, password: p}]}}\n", t.TempDir()))
	writeFile(t, file, "apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 100/s, capacity: 2}\n")
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	ns := startNATS(t, opts)
	w, err := worker.Start(await.Context(t, "a worker to start"), externalSettings(t, "nats://u:p@"+ns.Addr().String(), file, "w"), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := await.Result(t, "the end of the worker", w.Wait); err != nil {
		t.Error(err)
	}
}

// externalSettingsWith are externalSettings with other variables too.
func externalSettingsWith(t *testing.T, url, file string, env map[string]string) *config.Settings {
	t.Helper()
	all := map[string]string{"WEIR_NATS_URL": url, "WEIR_CONFIG": file, "WEIR_REPLICAS": "1", "WEIR_HTTP_LISTEN": ""}
	for name, text := range env {
		if strings.HasPrefix(name, "WEIR_") {
			all[name] = text
		}
	}
	return settingsOf(t, all)
}

// occupy makes a stream of somebody else's.
func occupy(t *testing.T, url, subject string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = operatorsAt(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{subject}})
	if err != nil {
		t.Fatal(err)
	}
}

// selfSigned writes a certificate for a name, and its key beside it.
func selfSigned(t *testing.T, path, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	writeFile(t, path+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return path
}
