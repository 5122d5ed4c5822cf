package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"weir/cmd/weir/internal/config"
)

// Options are how a server of somebody else's is asked for entry.
func Options(s *config.Settings) []nats.Option {
	var opts []nats.Option
	if s.NATSInbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.NATSInbox))
	}
	if s.NATSCreds.IsSet() {
		opts = append(opts, credentials(s.NATSCreds.Reveal()))
	}
	if s.NATSCA != "" {
		opts = append(opts, nats.RootCAs(s.NATSCA))
	}
	return opts
}

// credentials is how a file of credentials is shown to a server: a user's key alone, as a weir with its own server writes it, or
// with an account's word for it, as nsc does.
func credentials(path string) nats.Option {
	if text, err := os.ReadFile(path); err == nil && !strings.Contains(string(text), "NATS USER JWT") {
		if option, err := nats.NkeyOptionFromSeed(path); err == nil {
			return option
		}
	}
	return nats.UserCredentials(path) // it tells what is wrong with the file
}

// Explain says why there is no connection, and what to do about it: start, where nobody is there at all. at is the
// address without credentials.
func Explain(at, start string, err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch text := err.Error(); {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("the NATS server at %s refused the credentials: set WEIR_NATS_CREDS (a weir with its own server keeps operator.creds in its data directory: name that by WEIR_DATA_DIR), or put user and password into WEIR_NATS_URL: %w", at, err)
	case errors.Is(err, nats.ErrNkeysNotSupported), strings.Contains(text, "nkey"), strings.Contains(text, "credentials file"):
		return fmt.Errorf("WEIR_NATS_CREDS does not name a credentials file (nsc generate creds writes one) that the server at %s can use: %w", at, err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of the NATS server at %s is signed by nobody this machine knows: set WEIR_NATS_CA to the CA's certificate: %w", at, err)
	case errors.As(err, &name):
		return fmt.Errorf("the NATS server at %s has a certificate for other names: connect by one of them, or have the certificate made for this one: %w", at, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("the certificate of the NATS server at %s does not hold: renew it, or set this machine's clock: %w", at, err)
	case errors.As(err, &alert):
		return fmt.Errorf("the NATS server at %s broke the TLS handshake off (does it ask for a client's certificate? weir has none: use credentials): %w", at, err)
	case errors.Is(err, nats.ErrSecureConnWanted), errors.As(err, &record):
		return fmt.Errorf("the NATS server at %s does not speak TLS: write nats:// in WEIR_NATS_URL and leave WEIR_NATS_CA empty, or set up tls {} on the server: %w", at, err)
	case errors.Is(err, nats.ErrMaxAccountConnectionsExceeded), errors.Is(err, nats.ErrMaxConnectionsExceeded):
		return fmt.Errorf("the NATS server at %s takes no more connections: raise max_connections (of the server, or of the account): %w", at, err)
	}
	return fmt.Errorf("no NATS server answers at %s (%w): start %s, or set WEIR_NATS_URL to the server's address", at, err, start)
}
