package console

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/certtest"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestCertificateOfAnAPIExpires: what is called while the certificate holds is called once; when it has ended nothing is sent, `weir show`
// says when it ended, and with a new one the rest is called, once, without a restart.
func TestCertificateOfAnAPIExpires(t *testing.T) {
	t.Parallel()
	a := certtest.New(t)
	var (
		mu    sync.Mutex
		cert  tls.Certificate // made when weir runs: calls must begin before it ends
		calls = map[string]int{}
	)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if calls[string(body)]++; err != nil {
			t.Error(err)
		}
	}))
	// Not GetCertificate: httptest has a certificate of its own, which comes first where an address is called and no name.
	api.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}, nil
	}}
	api.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	api.Config.SetKeepAlivesEnabled(false)           // a connection that stands is not looked at again
	api.StartTLS()
	t.Cleanup(api.Close)
	yaml := strings.ReplaceAll("apis:\n  pay:\n    url: URL\n    tls: {ca_file: CA}\n    bucket: {rate: 4/s, capacity: 1000}\n    retry: {min: 100ms, max: 1s}\n# %s\n", "URL", api.URL)
	yaml = strings.ReplaceAll(yaml, "CA}", a.File+"}")
	httpAddr := servers.FreePort(t)
	r := weirtest.NewKillRig(t, fakeapi.Options{}, yaml, "WEIR_HTTP_LISTEN="+httpAddr)
	expiry := func() float64 {
		res, err := http.Get("http://" + httpAddr + "/metrics") //nolint:noctx // this machine's
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "\nweir_certificate_expiry_timestamp_seconds{api=\"pay\"} ")
		value, err := strconv.ParseFloat(strings.SplitN(after, "\n", 2)[0], 64)
		if err != nil {
			t.Errorf("no metric of the certificate: %v", err)
		}
		return value
	}
	ends := time.Now().Add(5 * time.Second).Truncate(time.Second)
	mu.Lock()
	cert = a.Sign(ends)
	mu.Unlock()
	const jobs = 48 // for six seconds
	for i := range jobs {
		r.Publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k.%d", i%2), fmt.Sprint("job-", i), fmt.Append(nil, "job-", i))
	}
	ctx := await.Context(t, "a hold for the certificate")
	env := []string{"WEIR_NATS_URL=nats://" + r.Addr}
	for {
		if got := program.Command(t, env, "status"); strings.Contains(got.Stdout, "expired at "+ends.UTC().Format(time.RFC3339)) {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("weir status says\n%s%s", got.Stdout, got.Stderr)
		}
	}
	if got := expiry(); got != float64(ends.Unix()) {
		t.Errorf("the certificate that has ended ends at %f, want %d", got, ends.Unix())
	}
	mu.Lock()
	cert = a.Sign(time.Now().Add(time.Hour))
	mu.Unlock()
	r.AwaitEmpty()
	if got := expiry(); got < float64(ends.Unix()+60) {
		t.Errorf("the new certificate ends at %f", got)
	}
	ended := r.Outcomes()
	for i := range jobs {
		if id := fmt.Sprint("job-", i); len(ended[id]) != 1 || ended[id][0] != "done" {
			t.Errorf("%s ended as %v", id, ended[id])
		}
		if n := calls[fmt.Sprint("job-", i)]; n != 1 {
			t.Errorf("job-%d was called %d times", i, n)
		}
	}
}

// TestCertificatesOfServersExpire: when the certificates of NATS, of weir's connection to it and of Redis have expired,
// weir reaches no server and waits. With new ones, without a restart of weir, all accepted jobs are called, once.
func TestCertificatesOfServersExpire(t *testing.T) {
	t.Parallel()
	a, dir := certtest.New(t), t.TempDir()
	var (
		mu    sync.Mutex
		cert  = a.Sign(time.Now().Add(time.Hour))
		calls = map[string]int{}
		// lapsed is closed when the certificates have lapsed. Until then a key's second call is not answered, and the key's
		// other jobs wait for it.
		lapsed = make(chan struct{})
	)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		calls[string(body)]++
		first := len(calls) <= 2
		mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		if !first {
			select {
			case <-lapsed:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(api.Close)
	ns := servers.StartNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, TLS: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()}, nil
		}},
	})
	own, ownKey := certtest.Write(t, dir, cert)
	redis := servers.StartRedis(t, "--tls-auth-clients", "no")
	tlsAddr := servers.FreePort(t)
	_, tlsPort, _ := net.SplitHostPort(tlsAddr)
	secure := func(cert, key string) {
		for _, c := range [][]any{{"tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", a.File}, {"tls-port", tlsPort}} {
			if err := redis.Client().Do(t.Context(), append([]any{"config", "set"}, c...)...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	secure(own, ownKey)
	file := filepath.Join(dir, "weir.yaml")
	weirtest.WriteFile(t, file, "apis:\n  pay:\n    url: "+api.URL+"\n    bucket: {rate: 4/s, capacity: 1000, in_flight: 1}\n    limits: [{name: all, rate: 8/s}]\n")
	weir, err := program.StartProcess(t, "WEIR_CONFIG="+file, "WEIR_DATA_DIR="+filepath.Join(dir, "data"), "WEIR_HTTP_LISTEN=", "WEIR_REPLICAS=1", "WEIR_PARTITIONS=2",
		"WEIR_NATS_URL=tls://"+ns.Addr().String(), "WEIR_NATS_CA="+a.File, "WEIR_NATS_CERT="+own, "WEIR_NATS_KEY="+ownKey,
		"WEIR_REDIS_URL=rediss://"+tlsAddr, "SSL_CERT_FILE="+a.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(weir.Kill)
	shown := a.Sign(time.Now().Add(time.Hour))
	nc, err := nats.Connect("tls://"+ns.Addr().String(), nats.Timeout(await.Patience), nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool(), Certificates: []tls.Certificate{shown}}))
	if err != nil {
		t.Fatal(err)
	}
	const jobs = 32 // for four seconds
	for i := range jobs {
		reply, err := nc.RequestWithContext(await.Context(t, "a receipt"), fmt.Sprintf("weir.jobs.pay.k.%d", i%2), fmt.Append(nil, "job-", i))
		if err != nil || strings.Contains(string(reply.Data), "error") {
			t.Fatalf("job-%d: %v %s", i, err, reply.Data)
		}
	}
	nc.Close()
	// Replaces all certificates, and breaks the connections so that clients connect again.
	show := func(until time.Time) {
		mu.Lock()
		cert = a.Sign(until)
		mu.Unlock()
		certtest.Write(t, dir, a.Sign(until))
		secure(own, ownKey)
		for _, c := range connections(t, ns) {
			_ = ns.DisconnectClientByID(c)
		}
		if err := redis.Client().Do(t.Context(), "client", "kill", "type", "normal").Err(); err != nil {
			t.Fatal(err)
		}
	}
	called := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(calls)
	}
	await.Until(t, "the first calls", func() bool { return called() > 1 })
	show(time.Now().Add(-time.Minute))
	await.Until(t, "no client is connected", func() bool { return len(connections(t, ns)) == 0 })
	close(lapsed)
	before, noticed := called(), time.Now().Add(time.Second)
	await.Until(t, "a second in which weir tries", func() bool { return time.Now().After(noticed) })
	if n := len(connections(t, ns)); n > 0 {
		t.Errorf("%d connections with certificates that have ended", n)
	}
	if before == jobs {
		t.Fatal("all were called before the certificates had ended: mend this test")
	}
	show(time.Now().Add(time.Hour))
	await.Until(t, "all calls", func() bool { return called() == jobs })
	mu.Lock()
	defer mu.Unlock()
	for job, n := range calls {
		if n != 1 {
			t.Errorf("%s was called %d times", job, n)
		}
	}
	t.Logf("%d of %d were called before the certificates had ended", before, jobs)
}

// connections are the ids of all clients of a server. One that is in the middle of its handshake, and may be refused, is none yet.
func connections(t *testing.T, ns *server.Server) (ids []uint64) {
	t.Helper()
	conns, err := ns.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns.Conns {
		if c.Lang != "" { // said when the handshake is over
			ids = append(ids, c.Cid)
		}
	}
	return ids
}
