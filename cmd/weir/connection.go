package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/weir/internal/config"
)

// Bounds of what a command waits for.
const (
	connectTimeout = 3 * time.Second
	requestTimeout = 5 * time.Second
	submitTimeout  = 15 * time.Second // the intake itself waits for the store
)

// defaultNATSURL is where commands look for the server when WEIR_NATS_URL is not set.
const defaultNATSURL = "nats://127.0.0.1:4222"

// connection is how a command talks to the server. Close it.
type connection struct {
	nc *nats.Conn
	js jetstream.JetStream
	at string // the server's address, without credentials
}

// dial connects to the server that the environment names.
func dial() (*connection, error) {
	settings, err := config.ReadSettings()
	if err != nil {
		return nil, usage(err)
	}
	url, at := settings.NATSURL.Reveal(), settings.NATSURL.String()
	if settings.Embedded() {
		url, at = defaultNATSURL, defaultNATSURL
	}
	opts := []nats.Option{nats.Name("weir command"), nats.Timeout(connectTimeout), nats.MaxReconnects(-1)}
	if settings.NATSCreds.IsSet() {
		opts = append(opts, nats.UserCredentials(settings.NATSCreds.Reveal()))
	}
	if settings.NATSCA != "" {
		opts = append(opts, nats.RootCAs(settings.NATSCA))
	}
	nc, err := nats.Connect(url, opts...)
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, unreachable(fmt.Errorf("the NATS server at %s refused the credentials: set WEIR_NATS_CREDS, or put user and password into WEIR_NATS_URL", at))
	case err != nil:
		return nil, unreachable(fmt.Errorf("no NATS server answers at %s (%w): start `weir serve`, or set WEIR_NATS_URL to the server's address", at, err))
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return &connection{nc: nc, js: js, at: at}, nil
}

// Close ends the connection.
func (c *connection) Close() { c.nc.Close() }

// explain gives an error from NATS its exit code, and its cure where there is one.
func (c *connection) explain(err error) error {
	var coded *exit
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return unreachable(fmt.Errorf("JetStream does not answer at %s: enable it for this account (nats-server -js), or point WEIR_NATS_URL at the server weir uses", c.at))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed):
		return unreachable(fmt.Errorf("the server at %s does not answer in time: %w", c.at, err))
	}
	return err
}

// running reads the running configuration. ok is false where there is none to be read: weir never ran on this server,
// or these credentials may not see it.
func (c *connection) running(ctx context.Context) (current *config.Config, ok bool) {
	v, err := c.configVersion(ctx)
	if err != nil {
		return nil, false
	}
	return v.config, true
}

// noAPI says that an api is not configured, and which are.
func noAPI(name string, c *config.Config) error {
	names := make([]string, len(c.APIs))
	for i := range c.APIs {
		names[i] = c.APIs[i].Name
	}
	if len(names) == 0 {
		return notFound(fmt.Errorf("there is no api %q: none is configured", name))
	}
	return notFound(fmt.Errorf("there is no api %q; the configured ones are %s", name, strings.Join(names, ", ")))
}
