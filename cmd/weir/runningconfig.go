package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/deadletter"
)

// currentKey is where the running configuration stands; its revision is the version.
const currentKey = "current"

// configHistory is how many versions are kept: the most that a key-value bucket can.
const configHistory = 64

// runningConfig is one version of the configuration, as it is kept in NATS. The text names secrets, it does not hold
// them.
type runningConfig struct {
	YAML    string    `json:"yaml"`
	From    string    `json:"from"` // the file or command it came from
	Who     string    `json:"who"`
	At      time.Time `json:"at"`
	Changes int       `json:"changes"` // from the version before
	// FileSum is the checksum of the file that weir serve applied last, in this version or an earlier one.
	FileSum string `json:"file_sum,omitempty"`
}

var errNoConfig = errors.New("no api is configured: write weir.yaml (deploy/weir.example.yaml is a start) or set WEIR_CONFIG; `weir demo` needs none")

// configVersion is a version that can be read.
type configVersion struct {
	runningConfig
	version uint64
	config  *config.Config
}

// readVersion reads one version.
func readVersion(entry jetstream.KeyValueEntry) (*configVersion, error) {
	v := &configVersion{version: entry.Revision()}
	if entry.Operation() != jetstream.KeyValuePut {
		return nil, fmt.Errorf("version %d of the configuration is a deletion", v.version)
	}
	if err := json.Unmarshal(entry.Value(), &v.runningConfig); err != nil {
		return nil, fmt.Errorf("version %d of the configuration (key %s in %s) cannot be read: %w", v.version, currentKey, connect.ConfigBucket, err)
	}
	var err error
	if v.config, err = config.Parse([]byte(v.YAML), config.Options{Name: fmt.Sprintf("version %d from %s", v.version, v.From)}); err != nil {
		return nil, err
	}
	return v, nil
}

// configStore is the configuration's home: a key-value bucket, whose history is the configuration's.
type configStore struct{ kv jetstream.KeyValue }

// ensureConfigStore makes the bucket exist.
func ensureConfigStore(ctx context.Context, js jetstream.JetStream, replicas int) (configStore, error) {
	kv, err := stream.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: connect.ConfigBucket, Description: "weir: the running configuration and its history", History: configHistory, Replicas: replicas,
		MaxValueSize: 4 << 20,
	}, nil)
	if err != nil {
		return configStore{}, err
	}
	return configStore{kv}, nil
}

// newest returns the newest version that can be read, nil when there is none, and the revision that stands there last,
// whether or not it can be read.
func (s configStore) newest(ctx context.Context) (valid *configVersion, last uint64, err error) {
	entries, err := s.kv.History(ctx, currentKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, fmt.Errorf("read the running configuration: %w", err)
	}
	for _, entry := range slices.Backward(entries) {
		last = max(last, entry.Revision())
		if v, err := readVersion(entry); err == nil {
			return v, last, nil
		}
	}
	return nil, last, nil
}

// errLostRace says that somebody else has changed the configuration meanwhile.
var errLostRace = errors.New("somebody else has changed the configuration meanwhile")

// put stores a version if the last one still has that revision, and fails with errLostRace if not.
func (s configStore) put(ctx context.Context, next runningConfig, last uint64) (version uint64, err error) {
	value, err := json.Marshal(next)
	if err != nil {
		return 0, fmt.Errorf("apply the configuration: %w", err)
	}
	if last == 0 {
		version, err = s.kv.Create(ctx, currentKey, value)
	} else {
		version, err = s.kv.Update(ctx, currentKey, value, last)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), isWrongSequence(err):
		return 0, errLostRace
	case err != nil:
		return 0, fmt.Errorf("apply the configuration: %w", err)
	}
	return version, nil
}

// wrongSequenceInCluster is the error code that a clustered stream gives instead.
const wrongSequenceInCluster = 10164

func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == wrongSequenceInCluster)
}

// configData is what a config event tells.
type configData struct {
	Who        string `json:"who"`
	From       string `json:"from"`
	OldVersion uint64 `json:"old_version"` // 0: there was none
	NewVersion uint64 `json:"new_version"`
	Changes    int    `json:"changes"`
}

func (d configData) event() deadletter.Event {
	return deadletter.Event{Type: deadletter.ConfigEvent, Data: d}
}

// ensureControl makes the bucket of operators' words and canaries.
func ensureControl(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	return stream.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: connect.ControlBucket, Description: "weir: operators' words, and canaries of readiness", History: 1, Replicas: replicas,
	}, nil)
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
func refuseUnsupported(c *config.Config) error {
	var errs []error
	for _, p := range c.MissingSecrets() {
		errs = append(errs, errors.New(p.In(c.File)))
	}
	if len(errs) == 0 {
		return nil
	}
	return cli.Usage(errors.Join(errs...))
}

// logWarnings logs what a file says and probably does not mean; of the environment no file is named.
func logWarnings(log *slog.Logger, file string, warnings []config.Problem) {
	for _, p := range warnings {
		log.Warn("configuration", "problem", p.In(file))
	}
}
