package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"weir/cmd/weir/internal/config"
)

// accessOptions are how a server of somebody else's is asked for entry.
func accessOptions(s *config.Settings) []nats.Option {
	var opts []nats.Option
	if s.NATSInbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.NATSInbox))
	}
	if s.NATSCreds.IsSet() {
		opts = append(opts, nats.UserCredentials(s.NATSCreds.Reveal()))
	}
	if s.NATSCA != "" {
		opts = append(opts, nats.RootCAs(s.NATSCA))
	}
	return opts
}

// explainConnect says why there is no connection, and what to do about it: start, where nobody is there at all. at is the
// address without credentials.
func explainConnect(at, start string, err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch text := err.Error(); {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("the NATS server at %s refused the credentials: set WEIR_NATS_CREDS, or put user and password into WEIR_NATS_URL: %w", at, err)
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

// maxDenials bounds how many refusals are kept for the message: the first few tell which role is missing.
const maxDenials = 4

// denials are what the server has refused to this user. NATS answers a forbidden publish with nothing at all: whoever
// waits for a reply waits in vain, unless somebody tells. It is safe for concurrent use.
type denials struct {
	mu   sync.Mutex
	list []string
	told func(error) // of each; may be nil
}

// note keeps a refusal, and passes over any other error.
func (d *denials) note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	what := strings.TrimPrefix(err.Error(), nats.ErrPermissionViolation.Error()+": ")
	d.mu.Lock()
	if len(d.list) < maxDenials {
		d.list = append(d.list, what)
	}
	told := d.told
	d.mu.Unlock()
	if told != nil {
		told(err)
	}
}

// tell makes f hear of every refusal from now on; nil ends that.
func (d *denials) tell(f func(error)) {
	d.mu.Lock()
	d.told = f
	d.mu.Unlock()
}

// any reports whether anything was refused.
func (d *denials) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list) > 0
}

// tolerate gives a context that ends when something is refused, for what may be refused. done ends that, and forgets it.
func (d *denials) tolerate(ctx context.Context) (tolerant context.Context, done func()) {
	tolerant, cancel := context.WithCancelCause(ctx)
	d.mu.Lock()
	before, kept := d.told, len(d.list)
	d.told = cancel
	d.mu.Unlock()
	return tolerant, func() {
		cancel(nil)
		d.mu.Lock()
		d.told, d.list = before, d.list[:kept]
		d.mu.Unlock()
	}
}

// explain puts what was refused before an error that it explains; without a refusal it is err.
func (d *denials) explain(err error) error {
	if err == nil || !d.any() {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("the NATS server refuses this user rights that are needed (%s): give it a role of deploy/nats, or other credentials: %w",
		strings.Join(d.list, "; "), err)
}
