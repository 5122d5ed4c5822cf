package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// OpenConfigStore opens the bucket of the configuration. It fails with exit code 3 if the bucket does not exist.
func OpenConfigStore(ctx context.Context, c *connect.Connection) (ConfigStore, error) {
	store, err := FindConfigStore(ctx, c.JetStream)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return ConfigStore{}, errNeverApplied
	}
	return store, c.Explain(err)
}

// errNeverApplied reports that NATS holds no configuration.
var errNeverApplied = cli.NotFound(errors.New("no configuration was ever applied on this server: start `weir serve` with a weir.yaml, or `weir config apply`"))

// NeverApplied reports whether err says that NATS holds no configuration.
func NeverApplied(err error) bool { return errors.Is(err, errNeverApplied) }

// CurrentVersion returns the version in force, which is the newest readable one.
func CurrentVersion(ctx context.Context, c *connect.Connection) (*Version, error) {
	store, err := OpenConfigStore(ctx, c)
	if err != nil {
		return nil, err
	}
	v, _, err := store.Newest(ctx)
	if err != nil {
		return nil, c.Explain(err)
	}
	if v == nil {
		return nil, errNeverApplied
	}
	return v, nil
}

// MakeConfigStore opens the bucket of the configuration. It creates the bucket if it does not exist, for a weir that
// starts later.
func MakeConfigStore(ctx context.Context, c *connect.Connection) (ConfigStore, error) {
	store, err := OpenConfigStore(ctx, c)
	if !errors.Is(err, errNeverApplied) {
		return store, err
	}
	settings, err := environment.Read()
	if err != nil {
		return store, cli.Usage(err)
	}
	store, err = EnsureConfigStore(ctx, c.JetStream, settings.Replicas)
	return store, c.Explain(err)
}

// ConfigHistory returns every version that NATS keeps, the oldest first.
func ConfigHistory(ctx context.Context, c *connect.Connection) ([]jetstream.KeyValueEntry, error) {
	store, err := OpenConfigStore(ctx, c)
	if err != nil {
		return nil, err
	}
	entries, err := store.History(ctx)
	if err == nil && len(entries) == 0 {
		return nil, errNeverApplied
	}
	return entries, c.Explain(err)
}

// RunningConfig returns the running configuration. ok is false if it cannot be read: for example, weir never ran on
// this server, or the credentials do not allow reading the configuration.
func RunningConfig(ctx context.Context, c *connect.Connection) (current *config.Config, ok bool) {
	ctx, done := c.Denied.Tolerate(ctx) // a producer may lack the right to read the configuration
	defer done()
	v, err := CurrentVersion(ctx, c)
	if err != nil {
		return nil, false
	}
	return v.Config, true
}

// NoAPI returns the error that an api is not configured. The error names the configured apis.
func NoAPI(name string, c *config.Config) error {
	if len(c.APIs) == 0 {
		return cli.NotFound(fmt.Errorf("there is no api %q: none is configured", name))
	}
	return cli.NotFound(fmt.Errorf("there is no api %q; the configured ones are %s", name, strings.Join(c.Names(), ", ")))
}

// ReadFile reads a configuration file. It fails with exit code 3 if the file does not exist.
func ReadFile(file string) ([]byte, error) {
	text, err := cli.ReadFile(file, cli.MostConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cli.NotFound(fmt.Errorf("configuration: %w", err))
	} else if err != nil {
		return nil, cli.Usage(fmt.Errorf("configuration: %w", err))
	}
	return text, nil
}

// CheckAPIName fails if no api can have this name.
func CheckAPIName(name string) error {
	if err := ingest.CheckAPI(name); err != nil {
		return cli.NotFound(fmt.Errorf("there is no api %.80q: %w", name, err))
	}
	return nil
}

// ReadConfig reads a configuration file, and parses it for no site.
func ReadConfig(file string) (*config.Config, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	return config.Parse(text, config.Options{Name: file})
}
