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

// Trust says how weir recognises an https api, and which certificate weir shows to the api.
type Trust struct {
	Name string                      // name of the configured trust: connections under another name are not used
	Load func() (*tls.Config, error) // authorities and weir's certificate, per connection; nil: the machine's
}

// settings returns the TLS settings for a connection to a host. It fails if weir's certificate has expired: the api
// would refuse the certificate, and in TLS 1.3 only after a call was sent.
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

// anonymous returns the same trust without weir's certificate.
func (t Trust) anonymous() Trust {
	load := t.Load
	if load == nil {
		return t
	}
	t.Load = func() (*tls.Config, error) {
		s, err := load()
		if err != nil {
			return nil, err
		}
		s = s.Clone()
		s.Certificates = nil
		return s, nil
	}
	return t
}

// earliestEnd returns when the first of a connection's certificates expires; the zero time if there are none.
func earliestEnd(theirs []*x509.Certificate, own []tls.Certificate) time.Time {
	var earliest time.Time
	note := func(c *x509.Certificate) {
		if c != nil && (earliest.IsZero() || c.NotAfter.Before(earliest)) {
			earliest = c.NotAfter
		}
	}
	for _, c := range theirs {
		note(c)
	}
	for _, c := range own {
		note(c.Leaf)
	}
	return earliest
}

// Expires returns when the first of the newest connection's certificates expires: the api's, an authority's or weir's
// own. It returns the zero time if there were none.
func (c *Connections) Expires() time.Time {
	if at := c.expires.Load(); at > 0 {
		return time.Unix(at, 0)
	}
	return time.Time{}
}

// refusals are the TLS alerts with which a server ends a handshake because it rejects the client's certificate. They
// have the words of crypto/tls.
var refusals = []string{
	"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate", "unknown certificate authority",
	"certificate required",
}

// refusesCertificate reports whether a read error says that the server rejects weir's certificate. In TLS 1.3 this
// error comes when the client considers the handshake done and may have sent a call. The server has not read that call:
// it reads none before its own handshake is done.
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
