package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/cli"
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
	nc     *nats.Conn
	js     jetstream.JetStream
	at     string // the server's address, without credentials
	denied *denials
}

// dial connects to the server that the environment names.
func dial() (*connection, error) {
	settings, err := config.ReadSettings()
	if err != nil {
		return nil, cli.Usage(err)
	}
	return dialAs(settings)
}

// connected runs do with a connection to the server that the environment names, and closes it.
func connected(do func(c *connection) error) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

// aboutAPI is connected for a command about one api, which must be configured.
func aboutAPI(cmd *cobra.Command, api string, do func(c *connection) error) error {
	return connected(func(c *connection) error {
		if err := c.checkAPI(cmd, api); err != nil {
			return err
		}
		return do(c)
	})
}

// dialAs connects as settings say.
func dialAs(settings *config.Settings) (*connection, error) {
	url, at := settings.NATSURL.Reveal(), settings.NATSURL.String()
	if settings.Embedded() {
		url, at = defaultNATSURL, defaultNATSURL
	}
	denied := &denials{}
	opts := []nats.Option{
		nats.Name("weir command"), nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied.note(err) }),
	}
	nc, err := nats.Connect(url, append(opts, accessOptions(settings)...)...)
	if err != nil {
		return nil, cli.Unreachable(explainConnect(at, "`weir serve`", err))
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	c := &connection{nc: nc, js: js, at: at, denied: denied}
	denied.tell(c.hangUp)
	return c, nil
}

// Close ends the connection.
func (c *connection) Close() { c.nc.Close() }

// hangUp ends a connection whose user may not do what the command needs. NATS answers what is forbidden with nothing:
// whoever waits for a reply would wait in vain.
func (c *connection) hangUp(error) { c.nc.Close() }

// explain gives an error from NATS its exit code, and its cure where there is one.
func (c *connection) explain(err error) error {
	var coded *cli.Exit
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.Is(err, nats.ErrConnectionClosed) && c.denied.any():
		return c.denied.explain(err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return cli.Unreachable(fmt.Errorf("JetStream does not answer at %s: enable it for this account (nats-server -js), or point WEIR_NATS_URL at the server weir uses", c.at))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrConnectionClosed):
		return cli.Unreachable(fmt.Errorf("the server at %s does not answer in time: %w", c.at, err))
	}
	return err
}

// running reads the running configuration. ok is false where there is none to be read: weir never ran on this server,
// or these credentials may not see it.
func (c *connection) running(ctx context.Context) (current *config.Config, ok bool) {
	ctx, done := c.denied.tolerate(ctx) // a producer need not be allowed to see it
	defer done()
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
		return cli.NotFound(fmt.Errorf("there is no api %q: none is configured", name))
	}
	return cli.NotFound(fmt.Errorf("there is no api %q; the configured ones are %s", name, strings.Join(names, ", ")))
}
