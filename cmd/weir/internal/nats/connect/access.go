package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"weir/cmd/weir/internal/config/environment"
)

// Options returns the options of a connection to an external server: inbox, TLS and sign-in.
func Options(s *environment.Settings) []nats.Option {
	var opts []nats.Option
	if s.NATSInbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.NATSInbox))
	}
	return append(append(opts, Secured(s)...), signIn(s)...)
}

// Explain returns an error that says why there is no connection, and what to do. at is the address without credentials.
// start names what to start if no server answers at that address.
func Explain(at, start string, err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     *net.OpError // crypto/tls reports alerts of the server in this type
		own       *SignInError
	)
	switch {
	case errors.As(err, &own):
		return fmt.Errorf("cannot sign in to the NATS server at %s: %w", at, err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("the NATS server at %s refused the credentials: set WEIR_NATS_CREDS (a weir with its own server keeps operator.creds in its data directory: name that by WEIR_DATA_DIR), or one of the other ways to sign in (weir help environment): %w", at, err)
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("the NATS server at %s does not accept nkeys or credentials files: leave WEIR_NATS_CREDS and WEIR_NATS_NKEY empty, and sign in by user or token (weir help environment): %w", at, err)
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of the NATS server at %s is signed by an authority that this machine does not know: set WEIR_NATS_CA to the CA's certificate: %w", at, err)
	case errors.As(err, &name):
		return fmt.Errorf("the NATS server at %s has a certificate for other names: use one of them in WEIR_NATS_URL, or get a certificate for this name: %w", at, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return fmt.Errorf("the certificate of the NATS server at %s is valid from %s to %s: renew it, or set this machine's clock: %w", at,
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), err)
	case errors.As(err, &invalid):
		return fmt.Errorf("the certificate of the NATS server at %s is not valid: renew it, or set this machine's clock: %w", at, err)
	case errors.Is(err, nats.ErrSecureConnWanted), errors.As(err, &record):
		return fmt.Errorf("the NATS server at %s does not speak TLS: write nats:// in WEIR_NATS_URL and leave WEIR_NATS_CA empty, or set up tls {} on the server: %w", at, err)
	case errors.As(err, &alert) && alert.Op == "remote error", errors.Is(err, nats.ErrTLS):
		return fmt.Errorf("the NATS server at %s aborted the TLS handshake: if it requires client certificates, set WEIR_NATS_CERT and WEIR_NATS_KEY to a certificate signed by a CA that the server trusts: %w", at, err)
	case errors.Is(err, nats.ErrMaxAccountConnectionsExceeded), errors.Is(err, nats.ErrMaxConnectionsExceeded):
		return fmt.Errorf("the NATS server at %s accepts no more connections: raise max_connections of the server or of the account: %w", at, err)
	}
	return fmt.Errorf("no NATS server answers at %s (%w): start %s, or set WEIR_NATS_URL to the server's address", at, err, start)
}
