package httpcall

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Trust is by what an https api is known, and what weir shows it.
type Trust struct {
	Name string                      // of what was configured: connections under another one are not used
	Load func() (*tls.Config, error) // its authorities and weir's certificate, asked for each connection; nil: as the machine trusts
}

// settings are those of a connection to a host. A certificate of weir's that has ended is not shown: the api would refuse it, and in TLS 1.3
// only after a call was sent.
func (t Trust) settings(host string, now time.Time) (*tls.Config, error) {
	s := &tls.Config{}
	if t.Load != nil {
		loaded, err := t.Load()
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		s = loaded.Clone()
	}
	s.ServerName, s.MinVersion, s.NextProtos = host, tls.VersionTLS12, []string{"http/1.1"}
	for _, own := range s.Certificates {
		if own.Leaf != nil && now.After(own.Leaf.NotAfter) {
			return nil, fmt.Errorf("weir's certificate for the api (tls.cert_file) has expired at %s: replace the file, which is read for the next connection",
				own.Leaf.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return s, nil
}

// earliestEnd is when the first certificate of a connection ends; the zero time where there are none.
func earliestEnd(theirs []*x509.Certificate, own []tls.Certificate) time.Time {
	var ends time.Time
	note := func(c *x509.Certificate) {
		if c != nil && (ends.IsZero() || c.NotAfter.Before(ends)) {
			ends = c.NotAfter
		}
	}
	for _, c := range theirs {
		note(c)
	}
	for _, c := range own {
		note(c.Leaf)
	}
	return ends
}

// Expires is when the first certificate of the newest connection ends, the api's, an authority's or weir's own; the zero time where there
// was none.
func (c *Connections) Expires() time.Time {
	if ends := c.ends.Load(); ends > 0 {
		return time.Unix(ends, 0)
	}
	return time.Time{}
}

// refusals are the alerts of TLS by which a server ends a handshake since it does not take a client's certificate, as crypto/tls writes them.
var refusals = []string{
	"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate", "unknown certificate authority",
	"certificate required",
}

// refusesCertificate reports whether what could not be read is a server's word that it does not take weir's certificate. In TLS 1.3 that comes
// when the client takes the handshake for done and may have sent a call; the server reads none before its own handshake is.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	for _, refusal := range refusals {
		if strings.HasSuffix(remote.Err.Error(), "tls: "+refusal) {
			return true
		}
	}
	return false
}
