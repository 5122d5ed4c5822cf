package httpcall

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestCertificateSaysWhenItEnded checks that a connection that fails because a certificate has expired, or is
// not valid yet, says when that is.
func TestCertificateSaysWhenItEnded(t *testing.T) {
	api := httptest.NewTLSServer(nil)
	t.Cleanup(api.Close)
	roots := x509.NewCertPool()
	roots.AddCert(api.Certificate())
	for _, c := range []struct {
		now  time.Time
		want string
	}{
		{api.Certificate().NotAfter.Add(time.Hour), "it has expired at " + api.Certificate().NotAfter.UTC().Format(time.RFC3339)},
		{api.Certificate().NotBefore.Add(-time.Hour), "it is valid from " + api.Certificate().NotBefore.UTC().Format(time.RFC3339)},
	} {
		conn, err := tls.Dial("tcp", api.Listener.Addr().String(), &tls.Config{
			RootCAs: roots, ServerName: "example.com", Time: func() time.Time { return c.now }, MinVersion: tls.VersionTLS12,
		})
		if err == nil {
			_ = conn.Close()
			t.Fatal("a certificate out of its time is trusted")
		}
		var invalid x509.CertificateInvalidError
		if !errors.As(err, &invalid) {
			t.Fatal(err)
		}
		if got := outOfTime(invalid.Cert, c.now); !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
