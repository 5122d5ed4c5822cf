package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/weir/internal/config"
)

// The key-value buckets that every weir on a server shares.
const (
	configBucket  = "weir_config"
	controlBucket = "weir_control"
	leasesBucket  = "weir_leases"

	currentKey  = "current" // the running configuration
	fromFileKey = "file"    // the checksum of the file applied last
)

// runningConfig is the configuration in force, as it is kept in NATS. The text names secrets, it does not hold them.
type runningConfig struct {
	YAML string    `json:"yaml"`
	From string    `json:"from"` // the file or command it came from
	Who  string    `json:"who"`
	At   time.Time `json:"at"`
}

var errNoConfig = errors.New("no api is configured: write weir.yaml (deploy/weir.example.yaml is a start) or set WEIR_CONFIG; `weir demo` needs none")

// adoptConfig decides what runs: the file, when it is not the one applied last from a file; otherwise what NATS holds,
// so that a restart keeps what was applied since.
func adoptConfig(ctx context.Context, js jetstream.JetStream, s *config.Settings, file *configFile) (*config.Config, error) {
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: configBucket, Description: "weir: the running configuration and its history", History: 64, Replicas: s.Replicas,
		MaxValueSize: 4 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("key-value bucket %s: %w", configBucket, err)
	}
	if file != nil {
		last, err := kv.Get(ctx, fromFileKey)
		switch {
		case err == nil && string(last.Value()) == file.sum:
		case err == nil || errors.Is(err, jetstream.ErrKeyNotFound):
			return file.config, applyFile(ctx, kv, s, file)
		default:
			return nil, fmt.Errorf("read the running configuration: %w", err)
		}
	}
	c, err := loadRunning(ctx, kv)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, errNoConfig
	}
	return c, err
}

func applyFile(ctx context.Context, kv jetstream.KeyValue, s *config.Settings, file *configFile) error {
	value, err := json.Marshal(runningConfig{YAML: string(file.text), From: s.Config, Who: whoami(), At: time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("apply the configuration: %w", err)
	}
	if _, err := kv.Put(ctx, currentKey, value); err != nil {
		return fmt.Errorf("apply the configuration: %w", err)
	}
	if _, err := kv.Put(ctx, fromFileKey, []byte(file.sum)); err != nil {
		return fmt.Errorf("apply the configuration: %w", err)
	}
	return nil
}

func loadRunning(ctx context.Context, kv jetstream.KeyValue) (*config.Config, error) {
	running, _, err := readRunning(ctx, kv)
	if err != nil {
		return nil, err
	}
	return config.Parse([]byte(running.YAML), config.Options{Name: running.From})
}

// readRunning reads the configuration in force and its version.
func readRunning(ctx context.Context, kv jetstream.KeyValue) (running runningConfig, version uint64, err error) {
	entry, err := kv.Get(ctx, currentKey)
	if err != nil {
		return running, 0, fmt.Errorf("read the running configuration: %w", err)
	}
	if err := json.Unmarshal(entry.Value(), &running); err != nil {
		return running, 0, fmt.Errorf("the running configuration (version %d in %s) cannot be read: %w", entry.Revision(), configBucket, err)
	}
	return running, entry.Revision(), nil
}

// ensureControl makes the bucket of operators' words and canaries.
func ensureControl(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: controlBucket, Description: "weir: operators' words, and canaries of readiness", History: 1, Replicas: replicas,
	})
	if err != nil {
		return nil, fmt.Errorf("key-value bucket %s: %w", controlBucket, err)
	}
	return kv, nil
}

func whoami() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

func stampNow() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// refuseUnsupported refuses to call an api when that would break a limit or lack a secret: calls without a limit that
// was asked for are worse than no calls.
func refuseUnsupported(c *config.Config, s *config.Settings) error {
	var errs []error
	for _, p := range c.MissingSecrets() {
		errs = append(errs, errors.New(p.String()))
	}
	if s.RedisURL.IsSet() {
		errs = append(errs, errors.New("WEIR_REDIS_URL is set, and this version counts limits in the process only: unset it, and run one dispatching replica"))
	}
	return errors.Join(errs...)
}

func logWarnings(log *slog.Logger, warnings []config.Problem) {
	for _, p := range warnings {
		log.Warn("configuration", "problem", p.String())
	}
}
