package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Replicas of different versions of weir work on the same streams while one replaces the other. So weir only adds to an
// existing stream, because another version may need settings that this version does not know. weir lowers only bounds
// that the running configuration sets, because all replicas share that configuration. It does not touch a stream in a
// format that this version cannot read: see Schema.

// Metadata of every stream of weir. An operator may change the thresholds of `nats server check stream` by hand (`nats
// stream edit --metadata`), and weir keeps the change. The exception is the number of replicas, which weir always sets
// to the stream's own: without it the check reports every stream of a cluster as broken.
const (
	MetaKind   = "weir.kind"   // what is in the stream
	MetaSchema = "weir.schema" // the format of what is in it: Schema

	metaMonitor  = "io.nats.monitor.enabled"
	metaPeers    = "io.nats.monitor.peer-expect"
	metaPeerLag  = "io.nats.monitor.peer-lag-critical"  // messages
	metaPeerSeen = "io.nats.monitor.peer-seen-critical" // seconds
)

// Schema is the number of the format in which this version stores everything. It must be raised if the version before
// cannot read the new format, because a version refuses a store with a number higher than its own. Format 2 added marks
// of operations: a version that does not know them would call their jobs again.
const Schema = 2

// errNewer refuses a stream that a later version of weir has written.
func errNewer(schema string) error {
	return fmt.Errorf("a later version of weir has written it (%s %s, this one reads %d): start that version", MetaSchema, schema, Schema)
}

// Bounds is a set of a stream's bounds: those that the configuration sets. EnsureStream sets these bounds exactly, and
// so may lower them. It only raises all other bounds.
type Bounds int

// The bounds.
const (
	AgeBound    Bounds = 1 << iota // MaxAge
	SizeBound                      // MaxBytes
	DedupeBound                    // Duplicates
)

// Options describe the settings that a stream must have at least. Config is required.
type Options struct {
	Config     jetstream.StreamConfig
	Kind       string // what is in it, for readers of its metadata
	Configured Bounds
	Log        *slog.Logger // nil: nothing is logged
}

// EnsureStream creates a stream, or adds to an existing stream the settings that it lacks, and returns the stream's
// configuration. Settings that exceed the options stay, and are logged. A stream whose size is not configured keeps its
// room if the server has no more. EnsureStream blocks until this is done, for about a minute at most, or until ctx ends.
func EnsureStream(ctx context.Context, js jetstream.JetStream, o Options) (*jetstream.StreamConfig, error) {
	cfg, err := establish(ctx, func(ctx context.Context) (*jetstream.StreamConfig, error) { return o.ensure(ctx, js) })
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Config.Name, err)
	}
	return cfg, nil
}

func (o *Options) ensure(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamConfig, error) {
	name := o.Config.Name
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		created := o.Config
		created.Metadata = o.metadata(jetstream.StreamConfig{Replicas: created.Replicas})
		stream, err = js.CreateStream(ctx, created)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica came first, of any version
			stream, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, err
	}
	next := stream.CachedInfo().Config
	changes, err := o.raise(&next)
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err == nil && len(changes) > 0 {
		changes, err = o.patch(ctx, js, &next)
		if room := stream.CachedInfo().Config.MaxBytes; noRoom(err) && o.canKeep(room) {
			log.Warn("a stream keeps the room that it has: the NATS server's store (max_file_store) has no more",
				"stream", name, "bytes", room, "wanted_bytes", o.Config.MaxBytes)
			o.Config.MaxBytes = room
			changes, err = o.patch(ctx, js, &next)
		}
	}
	if err != nil {
		return nil, err
	}
	if more := o.beyond(next); len(more) > 0 {
		log.Info("a stream has more replicas or room than this start asks for; it keeps them", "stream", name, "has", more)
	}
	if len(changes) > 0 {
		log.Info("a stream was changed", "stream", name, "to", changes)
	}
	return &next, nil
}

// raise changes a stream's configuration to the one that the stream must get, and returns the fields that differ. It
// fails for a stream in a format that this version cannot read.
func (o *Options) raise(c *jetstream.StreamConfig) (changes []string, err error) {
	if n, err := strconv.Atoi(c.Metadata[MetaSchema]); err == nil && n > Schema {
		return nil, errNewer(c.Metadata[MetaSchema])
	}
	have := *c
	*c = o.raised(have)
	return differences(have, *c), nil
}

// EnsureBucket is EnsureStream for a key-value bucket. It opens the bucket.
func EnsureBucket(ctx context.Context, js jetstream.JetStream, cfg jetstream.KeyValueConfig, log *slog.Logger) (jetstream.KeyValue, error) {
	kv, err := establish(ctx, func(ctx context.Context) (jetstream.KeyValue, error) {
		kv, err := js.KeyValue(ctx, cfg.Bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = js.CreateKeyValue(ctx, cfg)
			if errors.Is(err, jetstream.ErrBucketExists) {
				kv, err = js.KeyValue(ctx, cfg.Bucket)
			}
		}
		return kv, err
	})
	if err != nil {
		return nil, fmt.Errorf("key-value bucket %s: %w", cfg.Bucket, err)
	}
	_, err = EnsureStream(ctx, js, Options{Log: log, Kind: "entries", Config: jetstream.StreamConfig{
		Name: "KV_" + cfg.Bucket, Replicas: cfg.Replicas, MaxMsgsPerSubject: int64(max(cfg.History, 1)), MaxMsgSize: cfg.MaxValueSize,
		SubjectDeleteMarkerTTL: cfg.LimitMarkerTTL, AllowMsgTTL: cfg.LimitMarkerTTL > 0,
		Discard: jetstream.DiscardNew, // as in every key-value bucket
	}})
	if err != nil {
		return nil, err
	}
	return kv, nil
}

// Look returns a stream. If no server answers, it asks again: while a cluster elects a leader, a start must not fail
// because of one lost request. Look blocks for about a minute at most, or until ctx ends. If there is no such stream,
// the error is jetstream.ErrStreamNotFound.
func Look(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	found, err := establish(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil
		}
		return s, err
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, jetstream.ErrStreamNotFound
	}
	return found, nil
}

// Open returns a stream that exists. It asks again if a server does not know of the stream: in a cluster that server
// may lag behind the server that created it. Open blocks for about a minute at most, or until ctx ends.
func Open(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := establish(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, name) })
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", name, err)
	}
	return s, nil
}

// Two replicas that start together on a new cluster ask for the same streams at the same moment. nats-server 2.15 may
// then answer neither, although it creates the streams. So an attempt waits only briefly, and each attempt looks for
// the stream first.
const (
	firstAttempt  = 2 * time.Second        // twice as long for every next one: a busy cluster is slow to agree
	mostAttempts  = 5                      // 62 seconds
	attemptPause  = 100 * time.Millisecond // also twice as long for every next one
	codeNoCluster = 10008                  // JetStream system temporarily unavailable
	codeNoRoom    = 10047                  // insufficient storage resources available
)

// establish repeats try until try succeeds, a server refuses with a reason, mostAttempts are used up, or ctx ends.
func establish[T any](ctx context.Context, try func(context.Context) (T, error)) (got T, err error) {
	for n := range mostAttempts {
		attempt, cancel := context.WithTimeout(ctx, firstAttempt<<n)
		got, err = try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !unanswered(err) {
			return got, err
		}
		if !Sleep(ctx, (attemptPause+rand.N(attemptPause))<<n) { // not in step with the other replica
			return got, err
		}
	}
	return got, fmt.Errorf("%w (asked %d times; check with `nats server report jetstream` that the cluster has a leader)", err, mostAttempts)
}

// unanswered reports whether no server has accepted or refused the request. "Stream not found" counts as unanswered: if
// another replica has just created the stream, the server that was asked may not know of it yet.
func unanswered(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) ||
		errors.As(err, &api) && api.ErrorCode == codeNoCluster
}

// canKeep reports whether a stream may keep a room of so many bytes, which is less than the options ask for. A stream
// without a size has no room to keep.
func (o *Options) canKeep(room int64) bool {
	return o.Configured&SizeBound == 0 && room > 0 && room < o.Config.MaxBytes
}

// noRoom reports whether the server refuses to reserve as many bytes as a stream asks for.
func noRoom(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeNoRoom
}

// raised returns the configuration that a stream with the configuration have must get.
func (o *Options) raised(have jetstream.StreamConfig) jetstream.StreamConfig {
	want, next := o.Config, have
	next.Subjects = slices.Clone(have.Subjects)
	for _, s := range want.Subjects {
		if !slices.Contains(next.Subjects, s) {
			next.Subjects = append(next.Subjects, s)
		}
	}
	next.Replicas = max(have.Replicas, want.Replicas)
	next.Metadata = o.metadata(next)
	next.Discard, next.DiscardNewPerSubject = want.Discard, want.DiscardNewPerSubject
	next.MaxMsgsPerSubject = larger(have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	if next.DiscardNewPerSubject && next.MaxMsgsPerSubject <= 0 {
		next.MaxMsgsPerSubject = math.MaxInt64 // the server insists on a bound; a lower one would delete messages
	}
	next.MaxMsgSize = larger(have.MaxMsgSize, want.MaxMsgSize)
	next.MaxAge, next.MaxBytes = larger(have.MaxAge, want.MaxAge), larger(have.MaxBytes, want.MaxBytes)
	if o.Configured&AgeBound != 0 {
		next.MaxAge = want.MaxAge
	}
	if o.Configured&SizeBound != 0 {
		next.MaxBytes = want.MaxBytes
	}
	next.Duplicates = max(have.Duplicates, want.Duplicates)
	if o.Configured&DedupeBound != 0 {
		next.Duplicates = want.Duplicates
	}
	if next.MaxAge > 0 {
		next.Duplicates = min(next.Duplicates, next.MaxAge) // the server refuses more
	}
	next.AllowDirect = have.AllowDirect || want.AllowDirect
	next.AllowAtomicPublish = have.AllowAtomicPublish || want.AllowAtomicPublish
	next.AllowMsgTTL = have.AllowMsgTTL || want.AllowMsgTTL
	next.SubjectDeleteMarkerTTL = max(have.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL)
	return next
}

// metadata returns the metadata that a stream must get: its present entries, and those that are missing.
func (o *Options) metadata(of jetstream.StreamConfig) map[string]string {
	m := map[string]string{metaMonitor: "1"}
	if o.Kind != "" {
		m[MetaKind] = o.Kind
	}
	if of.Replicas > 1 {
		m[metaPeerLag], m[metaPeerSeen] = "10000", "30s"
	}
	maps.Copy(m, o.Config.Metadata)
	maps.Copy(m, of.Metadata)
	m[MetaSchema] = strconv.Itoa(Schema)
	if delete(m, metaPeers); of.Replicas > 1 {
		m[metaPeers] = strconv.Itoa(of.Replicas)
	}
	return m
}

// beyond returns the settings of a stream that exceed the options.
func (o *Options) beyond(c jetstream.StreamConfig) []string {
	want := o.Config
	var found []string
	for _, s := range c.Subjects {
		if len(want.Subjects) > 0 && !slices.Contains(want.Subjects, s) {
			found = append(found, "subject "+s)
		}
	}
	note := func(name string, has, asked int64, text string) {
		if asked > 0 && (has <= 0 || has > asked) {
			found = append(found, name+" "+text)
		}
	}
	note("num_replicas", int64(c.Replicas), int64(want.Replicas), strconv.Itoa(c.Replicas))
	note("max_msgs_per_subject", c.MaxMsgsPerSubject, want.MaxMsgsPerSubject, strconv.FormatInt(c.MaxMsgsPerSubject, 10))
	note("max_msg_size", int64(c.MaxMsgSize), int64(want.MaxMsgSize), strconv.Itoa(int(c.MaxMsgSize)))
	note("max_bytes", c.MaxBytes, want.MaxBytes, strconv.FormatInt(c.MaxBytes, 10))
	note("max_age", int64(c.MaxAge), int64(want.MaxAge), c.MaxAge.String())
	note("duplicate_window", int64(c.Duplicates), int64(want.Duplicates), c.Duplicates.String())
	return found
}

// larger returns the larger of two bounds. A bound that is not positive means no bound.
func larger[T ~int32 | ~int64](have, want T) T {
	if have <= 0 || want <= 0 {
		return min(have, 0)
	}
	return max(have, want)
}

// differences returns the fields in which two configurations differ, with the values of the second.
func differences(a, b jetstream.StreamConfig) []string {
	var found []string
	before, after := fieldsOf(a), fieldsOf(b)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !bytes.Equal(before[name], after[name]) {
			found = append(found, name+" "+readable(name, after[name]))
		}
	}
	return found
}

// readable returns a JSON value as text. It writes the server's nanoseconds as a duration.
func readable(name string, value json.RawMessage) string {
	var d time.Duration
	if strings.HasSuffix(name, "_age") || strings.HasSuffix(name, "_window") || strings.HasSuffix(name, "_ttl") {
		if json.Unmarshal(value, &d) == nil {
			return d.String()
		}
	}
	return string(value)
}

func fieldsOf(c jetstream.StreamConfig) map[string]json.RawMessage {
	data, err := json.Marshal(c)
	fields := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		panic("bucket: a stream's configuration that JSON cannot carry: " + err.Error())
	}
	return fields
}

// patch updates the stream on the server, sets next to the stream's new configuration, and returns the fields that
// changed. It keeps fields that this version of the client does not know. It first reads the stream's configuration
// again, because another replica may have raised it: the server deletes messages if a bound is lowered.
func (o *Options) patch(ctx context.Context, js jetstream.JetStream, next *jetstream.StreamConfig) (changes []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWait)
	defer cancel()
	ask := func(what string, question []byte) (json.RawMessage, error) {
		msg, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM."+what+"."+o.Config.Name, question)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Error  *jetstream.APIError `json:"error"`
			Config json.RawMessage     `json:"config"`
		}
		switch err := json.Unmarshal(msg.Data, &answer); {
		case err != nil:
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		case answer.Error != nil:
			return nil, answer.Error
		}
		return answer.Config, nil
	}
	live, err := ask("INFO", nil)
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	var have jetstream.StreamConfig
	config := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(live, &have), json.Unmarshal(live, &config)); err != nil {
		return nil, fmt.Errorf("update: the configuration cannot be read: %w", err)
	}
	*next = have
	if changes, err = o.raise(next); err != nil || len(changes) == 0 {
		return nil, err
	}
	before, after := fieldsOf(have), fieldsOf(*next)
	for name := range before {
		if _, still := after[name]; !still {
			delete(config, name)
		}
	}
	for name, value := range after {
		if !bytes.Equal(before[name], value) {
			config[name] = value
		}
	}
	data, err := json.Marshal(config)
	if err == nil {
		_, err = ask("UPDATE", data)
	}
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	return changes, nil
}
