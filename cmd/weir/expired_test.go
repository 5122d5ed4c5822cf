package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket/certtest"
	"weir/cmd/internal/fakeapi"
	"weir/ingest/await"
)

// TestCertificateOfAnAPIExpires: what is called while the certificate holds is called once; when it has ended nothing is sent, `weir show`
// says when it ended, and with a new one the rest is called, once, without a restart.
func TestCertificateOfAnAPIExpires(t *testing.T) {
	a := certtest.New(t)
	ends := time.Now().Add(5 * time.Second).Truncate(time.Second)
	var (
		mu    sync.Mutex
		cert  = a.Sign(ends)
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
	httpAddr := freePort(t)
	r := newKillRig(t, fakeapi.Options{}, yaml, "WEIR_HTTP_LISTEN="+httpAddr)
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
	const jobs = 48 // for six seconds
	for i := range jobs {
		r.publish(t.Context(), fmt.Sprintf("weir.jobs.pay.k.%d", i%2), fmt.Sprint("job-", i), fmt.Append(nil, "job-", i))
	}
	ctx := await.Context(t, "a hold for the certificate")
	env := []string{"WEIR_NATS_URL=nats://" + r.addr}
	for {
		if got := command(t, env, "status"); strings.Contains(got.stdout, "expired at "+ends.UTC().Format(time.RFC3339)) {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("weir status says\n%s%s", got.stdout, got.stderr)
		}
	}
	if got := expiry(); got != float64(ends.Unix()) {
		t.Errorf("the certificate that has ended ends at %f, want %d", got, ends.Unix())
	}
	mu.Lock()
	cert = a.Sign(time.Now().Add(time.Hour))
	mu.Unlock()
	r.awaitEmpty()
	if got := expiry(); got < float64(ends.Unix()+60) {
		t.Errorf("the new certificate ends at %f", got)
	}
	ended := r.outcomes()
	for i := range jobs {
		if id := fmt.Sprint("job-", i); len(ended[id]) != 1 || ended[id][0] != "done" {
			t.Errorf("%s ended as %v", id, ended[id])
		}
		if n := calls[fmt.Sprint("job-", i)]; n != 1 {
			t.Errorf("job-%d was called %d times", i, n)
		}
	}
}
