package httpcall

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/certtest"
	"weir/ingest"
)

// TestRefusedCertificateSendsNothing checks that an api that rejects weir's certificate has read no call, even
// if TLS 1.3 lets weir send one before weir learns of it. The job is not unknown.
func TestRefusedCertificateSendsNothing(t *testing.T) {
	ours, theirs := certtest.New(t), certtest.New(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		var calls atomic.Int64
		api := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
		api.TLS = &tls.Config{
			MinVersion: version, MaxVersion: version, Certificates: []tls.Certificate{ours.Sign(time.Now().Add(time.Hour))},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool(),
		}
		api.Config.ErrorLog = log.New(io.Discard, "", 0)
		api.StartTLS()
		t.Cleanup(api.Close)
		base, err := url.Parse(api.URL)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			shown []tls.Certificate
			want  string
		}{
			"none":                {nil, "tls: "},
			"another authority's": {[]tls.Certificate{theirs.Sign(time.Now().Add(time.Hour))}, "tls: "},
			"one that has ended":  {[]tls.Certificate{ours.Sign(time.Now().Add(-time.Minute))}, "weir's certificate for the api (tls.cert_file) has expired at"},
			"the right one":       {[]tls.Certificate{ours.Sign(time.Now().Add(time.Minute))}, ""},
		} {
			calls.Store(0)
			conns := NewConnections(base, Trust{Load: func() (*tls.Config, error) {
				return &tls.Config{RootCAs: ours.Pool(), Certificates: c.shown, MinVersion: tls.VersionTLS12}, nil
			}}, time.Minute, 4)
			t.Cleanup(conns.Close)
			client := &Client{API: &API{
				Name: "pay", URL: base, Timeout: 10 * time.Second, Headers: func() ([]ingest.HeaderField, error) { return nil, nil },
			}, Agent: "weir/test", Conns: conns}
			for range 20 {
				err := conns.Acquire(t.Context())
				r := Response{Err: err}
				if err == nil {
					r = client.Call(t.Context(), &ingest.Job{Method: "POST", Body: []byte("pay")}, Hooks{})
					conns.Release()
				}
				if c.want == "" {
					if r.Status != 200 || time.Until(conns.Expires()) > time.Minute {
						t.Fatalf("%#x, %s: %+v, ends %s", version, name, r, conns.Expires())
					}
					continue
				}
				if r.Sent || r.Err == nil || !strings.Contains(r.Err.Error(), c.want) || calls.Load() > 0 {
					t.Fatalf("%#x, %s: sent %t, %v, and the api has read %d", version, name, r.Sent, r.Err, calls.Load())
				}
			}
		}
	}
}
