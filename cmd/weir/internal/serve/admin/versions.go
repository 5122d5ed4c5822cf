package admin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// currentKey is the key of the running configuration. Its revision is the version.
const currentKey = "current"

// fileKey is the key of the last FoundFile that added no version.
const fileKey = "file"

// KeptVersions is how many versions weir keeps: the most that a key-value bucket can keep.
const KeptVersions = 64

// StoredConfig is one version of the configuration, as stored in NATS. Its text contains references to secrets, and no
// secrets.
type StoredConfig struct {
	YAML    string    `json:"yaml"`
	From    string    `json:"from"` // the file or command that the version came from
	Who     string    `json:"who"`
	At      time.Time `json:"at"`
	Changes int       `json:"changes"` // the number of changes against the version before
	// Vendors are the revisions of the vendors' profiles that set defaults when this version was stored.
	Vendors map[string]string `json:"vendors,omitempty"`
	// File is the file that weir serve had considered last when this version was stored.
	File FoundFile `json:"file,omitzero"`
	// TakenBack holds checksums of the texts that rollbacks took out of force after File was considered. If a start or
	// SIGHUP finds one of these texts in the file, it does not apply the text again. The newest checksum is last; there
	// are at most KeptVersions.
	TakenBack []string `json:"taken_back,omitempty"`
	// Order is greater than the Order of every earlier version, even if NATS was restored meanwhile. It is the time in
	// microseconds, or the former version's Order plus one if that is more.
	Order int64 `json:"order"`
	// Site is the site of this store, and Shares are its shares of accounts that are in force, in percent. They belong to
	// the version, so that replicas follow a share as they follow any change. Only weir shares raises one.
	Site   string           `json:"site,omitempty"`
	Shares map[string]int64 `json:"shares,omitempty"`
}

// Take notes the site and the shares of a configuration that is to be stored.
func (s *StoredConfig) Take(c *config.Config) { s.Site, s.Shares = c.Site(), c.InForce() }

// After returns the Order for a new version that follows s. s may be nil if there is no version.
func (s *StoredConfig) After() int64 {
	now := time.Now().UnixMicro()
	if s != nil {
		now = max(now, s.Order+1)
	}
	return now
}

// FoundFile is a configuration file that weir serve has considered. If the file says the same as the configuration in
// force, no version is added, and the FoundFile is recorded under fileKey.
type FoundFile struct {
	Sum   string `json:"sum"`   // the checksum of the file's text
	After uint64 `json:"after"` // the newest revision when the file was considered; 0: there was no version
}

// Checksum returns the checksum that identifies the text of a configuration.
func Checksum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// Knows reports whether a file with that checksum must not be applied again: weir serve considered it last, or a
// rollback has since taken its text out of force.
func (s *StoredConfig) Knows(sum string) bool {
	return s.File.Sum == sum || slices.Contains(s.TakenBack, sum)
}

// Follow prepares next, which an operator has asked for, to replace s. The text of next no longer counts as taken back.
func (s *StoredConfig) Follow(next *StoredConfig) {
	wanted := Checksum([]byte(next.YAML))
	next.File, next.Order = s.File, s.After()
	next.TakenBack = slices.DeleteFunc(slices.Clone(s.TakenBack), func(sum string) bool { return sum == wanted })
}

// RollBack is Follow for a rollback. It also records that the text of s was taken back.
func (s *StoredConfig) RollBack(next *StoredConfig) {
	s.Follow(next)
	next.TakenBack = append(next.TakenBack, Checksum([]byte(s.YAML)))
	next.TakenBack = next.TakenBack[max(0, len(next.TakenBack)-KeptVersions):]
}

// ErrNoConfig reports that there is neither a configuration file nor a version in NATS.
var ErrNoConfig = errors.New("no api is configured: write weir.yaml (deploy/weir.example.yaml is a start) or set WEIR_CONFIG; `weir demo` needs none")

// Version is a version of the configuration that this process can read. Number is its revision in NATS.
type Version struct {
	StoredConfig
	Number uint64
	Config *config.Config
}

// ReadVersion decodes and parses one version. It fails if the entry is a deletion or cannot be read.
func ReadVersion(entry jetstream.KeyValueEntry) (*Version, error) {
	v := &Version{Number: entry.Revision()}
	if entry.Operation() != jetstream.KeyValuePut {
		return nil, fmt.Errorf("version %d of the configuration is a deletion", v.Number)
	}
	if err := json.Unmarshal(entry.Value(), &v.StoredConfig); err != nil {
		return nil, fmt.Errorf("version %d of the configuration (key %s in %s) cannot be read: %w", v.Number, currentKey, connect.ConfigBucket, err)
	}
	if err := v.parse(); err != nil {
		return nil, err
	}
	return v, nil
}

// parse parses the version's text.
func (v *Version) parse() (err error) {
	v.Config, err = config.Parse([]byte(v.YAML), config.Options{
		Name: fmt.Sprintf("version %d from %s", v.Number, v.From), Site: v.Site, Shares: v.Shares,
	})
	if err != nil {
		return err
	}
	v.Config.Version = v.Order
	return nil
}

// ConfigStore is the key-value bucket of the configuration. The bucket's history is the configuration's history. Its
// reads show all that the bucket's leader has.
type ConfigStore struct {
	kv jetstream.KeyValue
	nc *nats.Conn
}

func newConfigStore(kv jetstream.KeyValue, nc *nats.Conn) ConfigStore {
	return ConfigStore{stream.Renewing(kv, nc), nc}
}

// EnsureConfigStore creates the bucket if there is none.
func EnsureConfigStore(ctx context.Context, js jetstream.JetStream, replicas int) (ConfigStore, error) {
	kv, err := stream.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: connect.ConfigBucket, Description: "weir: the running configuration and its history", History: KeptVersions, Replicas: replicas,
		MaxValueSize: 4 << 20,
	}, nil)
	if err != nil {
		return ConfigStore{}, err
	}
	return newConfigStore(kv, js.Conn()), nil
}

// FindConfigStore opens the bucket if there is one.
func FindConfigStore(ctx context.Context, js jetstream.JetStream) (ConfigStore, error) {
	kv, err := js.KeyValue(ctx, connect.ConfigBucket)
	if err != nil {
		return ConfigStore{}, err
	}
	return newConfigStore(kv, js.Conn()), nil
}

// History returns every stored version, the oldest first. It returns none if no configuration was ever applied.
func (s ConfigStore) History(ctx context.Context) ([]jetstream.KeyValueEntry, error) {
	entries, err := s.kv.History(ctx, currentKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	return entries, err
}

// Watch watches the stored versions, beginning with the newest one.
func (s ConfigStore) Watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	watcher, err := s.kv.Watch(ctx, currentKey)
	if err != nil {
		return nil, fmt.Errorf("watch the configuration: %w", err)
	}
	return watcher, nil
}

// Newest returns the newest readable version, nil if there is none. last is the newest revision of the key, whether it
// is readable or not.
func (s ConfigStore) Newest(ctx context.Context) (valid *Version, last uint64, err error) {
	entries, err := s.History(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the running configuration: %w", err)
	}
	if len(entries) > 0 {
		last = entries[len(entries)-1].Revision()
	}
	if valid, err = NewestReadable(entries); err != nil || valid == nil {
		return nil, last, err
	}
	return valid, last, s.layFoundOver(ctx, valid)
}

// NewestReadable returns the newest version that can be read, or nil if there is none. If later versions
// cannot be read, it gets the site and the shares of the newest of them that has a site: they are outside the text.
// Otherwise a file that follows an older version could raise a share. NewestReadable fails if a later version may have
// shares and they cannot be read. entries must be in the order of their revisions.
func NewestReadable(entries []jetstream.KeyValueEntry) (*Version, error) {
	var unread []jetstream.KeyValueEntry // the newest first
	for _, entry := range slices.Backward(entries) {
		if v, err := ReadVersion(entry); err == nil {
			return v, v.takeShares(unread)
		}
		unread = append(unread, entry)
	}
	return nil, nil //nolint:nilnil // no version is no error
}

// takeShares gives v the site and the shares of the newest later version that has a site. Nothing else of the later
// versions can be read. later begins with the newest version.
func (v *Version) takeShares(later []jetstream.KeyValueEntry) error {
	for _, entry := range later {
		if entry.Operation() != jetstream.KeyValuePut {
			continue
		}
		var of StoredConfig
		err := json.Unmarshal(entry.Value(), &of)
		if of.Site == "" && (err == nil || v.Site == "") {
			continue // no weir of a site stored it, as far as is known
		}
		if err != nil {
			return fmt.Errorf("version %d of the configuration cannot be read, and may have lowered a share: roll weir back to the one that stored it: %w", entry.Revision(), err)
		}
		v.Site, v.Shares = of.Site, of.Shares
		if err := v.parse(); err != nil {
			return fmt.Errorf("version %d of the configuration with the shares of version %d: %w", v.Number, entry.Revision(), err)
		}
		return nil
	}
	return nil
}

// layFoundOver replaces a version's File by the FoundFile under fileKey, if that was recorded later. It then also
// clears TakenBack, because texts that were taken back before that file was considered may be applied again.
func (s ConfigStore) layFoundOver(ctx context.Context, v *Version) error {
	entry, err := stream.NewestEntry(ctx, s.nc, s.kv.Bucket(), fileKey) // a replica that lags could lack it
	switch {
	case err != nil:
		return fmt.Errorf("read which configuration file was found last: %w", err)
	case entry == nil || entry.Deleted():
		return nil
	}
	var found FoundFile
	if err := json.Unmarshal(entry.Data, &found); err != nil {
		return fmt.Errorf("which configuration file was found last (key %s in %s) cannot be read: delete the key: %w", fileKey, connect.ConfigBucket, err)
	}
	if found.After > v.File.After {
		v.File, v.TakenBack = found, nil
	}
	return nil
}

// Found records a file that says the same as the configuration in force.
func (s ConfigStore) Found(ctx context.Context, file FoundFile) error {
	value, err := json.Marshal(file)
	if err == nil {
		_, err = s.kv.Put(ctx, fileKey, value)
	}
	if err != nil {
		return fmt.Errorf("note which configuration file was found last: %w", err)
	}
	return nil
}

// RefuseUnread fails if the newest version cannot be read, for example because a later weir stored it. Without this
// check weir would run by an older version and ignore the newest limits.
func (s ConfigStore) RefuseUnread(ctx context.Context) error {
	entries, err := s.History(ctx)
	if err != nil {
		return fmt.Errorf("read the running configuration: %w", err)
	}
	if len(entries) == 0 || entries[len(entries)-1].Operation() != jetstream.KeyValuePut {
		return nil
	}
	if _, err := ReadVersion(entries[len(entries)-1]); err != nil {
		return fmt.Errorf("the newest configuration in NATS, version %d, cannot be read by this version of weir: start the one that wrote it, or have it "+
			"replaced by changing the file that WEIR_CONFIG names: %w", entries[len(entries)-1].Revision(), err)
	}
	return nil
}

// ErrLostRace reports that another process has stored a version meanwhile.
var ErrLostRace = errors.New("another change of the configuration came first")

// Put stores a version if last is still the newest revision, and otherwise fails with ErrLostRace.
func (s ConfigStore) Put(ctx context.Context, next StoredConfig, last uint64) (version uint64, err error) {
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
		return 0, ErrLostRace
	case err != nil:
		return 0, fmt.Errorf("apply the configuration: %w", err)
	}
	return version, nil
}

// PutUnclaimed stores a version if nothing was written to the bucket since the revision last. Otherwise it fails with
// ErrLostRace, also if a move of shares has claimed the site since.
func PutUnclaimed(ctx context.Context, js jetstream.JetStream, next StoredConfig, last uint64) (version uint64, err error) {
	ack, err := js.Publish(ctx, "$KV."+connect.ConfigBucket+"."+currentKey, marshal(next), jetstream.WithExpectLastSequence(last))
	switch {
	case isWrongSequence(err):
		return 0, ErrLostRace
	case err != nil:
		return 0, fmt.Errorf("apply the configuration: %w", err)
	}
	return ack.Sequence, nil
}

// wrongSequenceInCluster is the code of the same error from a clustered stream.
const wrongSequenceInCluster = 10164

func isWrongSequence(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == wrongSequenceInCluster)
}

// ConfigChange is the data of a config event.
type ConfigChange struct {
	Who        string `json:"who"`
	From       string `json:"from"`
	OldVersion uint64 `json:"old_version"` // 0: there was none
	NewVersion uint64 `json:"new_version"`
	Changes    int    `json:"changes"`
}

// Event is the event of a change.
func (d ConfigChange) Event() deadletter.Event {
	return deadletter.Event{Type: deadletter.ConfigEvent, Data: d}
}

// EnsureControl creates the control bucket (pauses, canaries and more) if there is none.
func EnsureControl(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.KeyValue, error) {
	kv, err := stream.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: connect.ControlBucket, Description: "weir: operators' words, and canaries of readiness", History: 1, Replicas: replicas,
		LimitMarkerTTL: deadletter.MarkerAge,
	}, nil)
	if err != nil {
		return nil, err
	}
	return stream.Renewing(kv, js.Conn()), nil
}

// ShownVersion is a version of the configuration with its text, for output. The text contains references to secrets,
// and no secrets.
type ShownVersion struct {
	Version uint64    `json:"version"`
	From    string    `json:"from"`
	Who     string    `json:"who"`
	At      time.Time `json:"at"`
	YAML    string    `json:"yaml"`
}

// Shown describes a version.
func (v *Version) Shown() ShownVersion { return ShownVersion{v.Number, v.From, v.Who, v.At, v.YAML} }

// PastVersion is a version of the history without its text, for output.
type PastVersion struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	From    string    `json:"from"`
	Changes int       `json:"changes"`         // the number of changes against the version before
	Error   string    `json:"error,omitempty"` // why weir cannot read and does not follow this version
}

// PastVersionOf describes an entry of the history, whether it is readable or not.
func PastVersionOf(entry jetstream.KeyValueEntry) PastVersion {
	v, err := ReadVersion(entry)
	if err != nil {
		return PastVersion{Version: entry.Revision(), At: entry.Created(), Error: "not valid: no weir follows it"}
	}
	return PastVersion{Version: v.Number, At: v.At, Who: v.Who, From: v.From, Changes: v.Changes}
}
