package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/environment"
)

// leastServer is the first version of nats-server that weir works with. It has batches that are stored with one fsync,
// and replicas that agree on a full key.
const leastServer = "2.14"

// checkWait bounds one request to the server.
const checkWait = 5 * time.Second

// Check verifies, before a worker accepts the first job, that the worker can work with the server. Otherwise a
// deficiency would show only later, after a call was made and paid for.
type Check struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Denied    *Denials
	Settings  *environment.Settings
	Config    *config.Config // nil if the configuration comes from NATS, where it is checked when it is read
	Inside    bool           // the server is inside another weir
	Log       *slog.Logger

	mayGate, mayAskSyncing bool
}

// MayGate reports, after Run, whether the user may answer readers in another account that imports from this one. It
// returns false if the server does not report the user's rights.
func (c *Check) MayGate() bool { return c.mayGate }

// Room returns how many bytes weir's streams use, and how many they may use, 0 if the server sets no limit. Each byte
// counts once, however many replicas the streams have. The server counts every replica, and a tier's limit, but not an
// account's, is meant for each replica.
func Room(info *jetstream.AccountInfo, replicas int) (used, most int64) {
	copies := int64(max(replicas, 1))
	if tier, ok := info.Tiers[tierName(replicas)]; ok {
		return int64(tier.Store) / copies, max(0, tier.Limits.MaxStore) //nolint:gosec // bytes on disks
	}
	return int64(info.Store) / copies, max(0, info.Limits.MaxStore) / copies //nolint:gosec // bytes on disks
}

func tierName(replicas int) string { return fmt.Sprintf("R%d", replicas) }

// Run makes the checks. It returns the bytes that the account may store in streams, as Room does.
func (c *Check) Run(ctx context.Context) (room int64, err error) {
	if err := c.version(); err != nil {
		return 0, err
	}
	if err := c.rights(ctx); err != nil {
		return 0, err
	}
	account, err := c.account(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.payload(); err != nil {
		return 0, err
	}
	c.syncs(ctx, account.Domain)
	limits := account.Limits
	if tier, ok := account.Tiers[tierName(c.Settings.Replicas)]; ok {
		limits = tier.Limits
	} else if len(account.Tiers) > 0 {
		return 0, fmt.Errorf("the account may keep no streams with %d replicas at %s: set WEIR_REPLICAS to what its tiers allow, or have a tier R%[1]d added",
			c.Settings.Replicas, c.at())
	}
	if err := c.streams(ctx, limits.MaxStreams); err != nil {
		return 0, err
	}
	if limits.MaxStore == 0 && limits.MaxMemory > 0 {
		return 0, fmt.Errorf("the account at %s may store nothing on disk: give it disk storage (jetstream { max_file })", c.at())
	}
	if _, room = Room(account, c.Settings.Replicas); room == 0 && !c.Inside {
		c.Log.Warn("the account has no limit for its store: if the server's store gets full, results and dead letters cannot be stored either, "+
			"and nothing warns before. Give the account a limit below the server's max_file_store (jetstream { max_file }, nsc edit account --js-disk-storage): "+
			"then weir refuses jobs with 503 while there is room for their ends", "server", c.at())
	}
	return room, nil
}

// TakesCopies makes the checks for a server that only receives copies of streams.
func (c *Check) TakesCopies(ctx context.Context) error {
	if err := errors.Join(c.version(), c.payload()); err != nil {
		return err
	}
	if _, err := c.account(ctx); err != nil {
		return cli.Unreachable(err)
	}
	return nil
}

func (c *Check) at() string { return c.Conn.ConnectedUrlRedacted() }

func (c *Check) version() error {
	version := c.Conn.ConnectedServerVersion()
	if r, ok := releaseOf(version); ok && r.before(release{2, 14}) {
		return fmt.Errorf("the nats-server at %s is version %s; weir needs %s or later: upgrade it", c.at(), version, leastServer)
	}
	return nil
}

// account asks the server for the account's JetStream limits and use.
func (c *Check) account(ctx context.Context) (*jetstream.AccountInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	info, err := c.JetStream.AccountInfo(ctx)
	switch {
	case err == nil:
		return info, nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, fmt.Errorf("JetStream is not enabled for this account at %s: add jetstream: enabled to the account (nsc edit account --js-enable for operator mode): %w", c.at(), err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("JetStream is not enabled at %s: start nats-server with -js or a jetstream {} block; on a leaf node, enable it there or connect to the server that has it: %w", c.at(), err)
	}
	return nil, fmt.Errorf("JetStream does not answer at %s (has its cluster a leader? nats server report jetstream): %w", c.at(), err)
}

// payload fails if the server's messages are too small for a letter of the largest job. A letter is longer than its
// job.
func (c *Check) payload() error {
	if c.Config == nil {
		return nil
	}
	return FitsPayload(c.Config, c.Conn)
}

// headerRoom is how many bytes of a message are for headers, in addition to the body of the job.
const headerRoom = 64 << 10

// FitsPayload returns an error if a configured body, with its headers, does not fit into a message of the server.
func FitsPayload(c *config.Config, nc *nats.Conn) error {
	most := max(0, nc.MaxPayload()-headerRoom)
	for _, a := range c.APIs {
		if a.MaxBody > most {
			return fmt.Errorf("api %s takes bodies of %d bytes, and the server at %s messages of %d: set max_payload: %d or more in its configuration, or lower the api's max_body to %d",
				a.Name, a.MaxBody, nc.ConnectedUrlRedacted(), nc.MaxPayload(), a.MaxBody+headerRoom, most)
		}
	}
	if c.Results.MaxBody > most {
		return fmt.Errorf("results.max_body is %d bytes, and the server at %s takes messages of %d: set max_payload: %d or more in its configuration, or lower results.max_body to %d",
			c.Results.MaxBody, nc.ConnectedUrlRedacted(), nc.MaxPayload(), c.Results.MaxBody+headerRoom, most)
	}
	return nil
}

// streams fails if the account has no room for the streams that are missing.
func (c *Check) streams(ctx context.Context, most int) error {
	if most <= 0 || c.Config == nil {
		return nil
	}
	want := map[string]struct{}{}
	for _, a := range c.Config.APIs {
		for p := range c.Settings.Partitions {
			want[fmt.Sprintf("WEIR_%s_%d", a.Name, p)] = struct{}{}
		}
	}
	for _, name := range CommonStreams() {
		want[name] = struct{}{}
	}
	have, more := 0, len(want)
	names := c.JetStream.StreamNames(ctx)
	for name := range names.Name() {
		have++
		if _, ok := want[name]; ok {
			more--
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the streams at %s: %w", c.at(), err)
	}
	if have+more > most {
		return fmt.Errorf("the account may have %d streams at %s, has %d and needs %d more: raise max_streams, or set WEIR_PARTITIONS lower before an api is first seen",
			most, c.at(), have, more)
	}
	return nil
}

// rights fails if the user lacks a right that a worker needs. If the server does not report rights, a refusal during
// the start will end the start.
func (c *Check) rights(ctx context.Context) error {
	user, may, err := askRights(ctx, c.Conn, c.Denied)
	if err != nil {
		c.Log.Warn("the server does not report this user's rights; a missing right shows when it is used", "err", err)
		return nil //nolint:nilerr // an older or closed server is no reason not to start
	}
	if may == nil {
		return nil // this version does not know the format of the answer
	}
	c.mayGate = len(may.missing(gateRights())) == 0
	c.mayAskSyncing = may.Publish.allows(SyncRight)
	missing := may.missing(workerRights(c.Settings))
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the NATS user %s at %s may not %s: give it the role worker of deploy/nats", user, c.at(),
		strings.Join(missing, ", nor "))
}

// askRights asks the server for this user's rights. may is nil if the server answers in a format that this version of
// weir cannot read.
func askRights(ctx context.Context, nc *nats.Conn, denied *Denials) (user string, may *permissions, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	ctx, done := denied.Tolerate(ctx)
	defer done()
	reply, err := nc.RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err != nil {
		return "", nil, err
	}
	var answer struct {
		Data struct {
			User        string       `json:"user"`
			Permissions *permissions `json:"permissions"`
		} `json:"data"`
	}
	if json.Unmarshal(reply.Data, &answer) != nil {
		return "", nil, nil
	}
	if may = answer.Data.Permissions; may == nil {
		may = &permissions{} // the server reports no permissions if the rights are unlimited
	}
	return answer.Data.User, may, nil
}

// MayPublish reports whether this user may publish on all subjects that a pattern matches. It returns true if the
// server does not tell. It blocks for five seconds at most.
func MayPublish(ctx context.Context, nc *nats.Conn, denied *Denials, pattern string) bool {
	_, may, err := askRights(ctx, nc, denied)
	return err != nil || may == nil || may.Publish.allows(pattern)
}

// ExplainStreams adds a remedy to an error of JetStream from creating a stream. It returns any other error unchanged.
func ExplainStreams(err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return err
	}
	fix := ""
	switch api.ErrorCode {
	case 10074: // replicas > 1 on a single server
		fix = "the NATS server is a single one and keeps one replica: set WEIR_REPLICAS=1, or WEIR_NATS_URL to a cluster"
	case 10005: // no suitable peers
		fix = "the cluster has fewer servers with JetStream than replicas are wanted: set WEIR_REPLICAS lower, or start the missing servers"
	case 10047, 10023: // the server's store
		fix = "the server's JetStream store has no room for this stream: raise max_file_store, or lower dead_letters.max_bytes"
	case 10002, 10028: // the account's store
		fix = "the account's JetStream store has no room for this stream: raise its max_file, or lower dead_letters.max_bytes"
	case 10027, 10026:
		fix = "the account may have no more streams: raise max_streams"
	case 10065: // overlapping subjects
		fix = "another stream takes subjects that weir's streams need: nats stream ls --subjects shows which; give weir an account of its own"
	case 10058: // the name is in use with another configuration
		fix = "a stream of this name exists and was not made by this version: nats stream info shows it; give weir an account of its own"
	default:
		return err
	}
	return fmt.Errorf("%s: %w", fix, err)
}

// MaxPayload returns the size in bytes of the largest message that weir's own server accepts. Every configured body and
// result fits. A body that is somewhat larger fits too, so that weir, and not the server, refuses it.
func MaxPayload(c *config.Config) int64 {
	most := int64(8 << 20)
	if c != nil {
		most = max(most, c.Results.MaxBody+(1<<20))
		for _, a := range c.APIs {
			most = max(most, a.MaxBody+(1<<20))
		}
	}
	return most
}
