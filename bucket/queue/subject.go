package queue

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/ingest"
)

// StreamName returns the name of the stream that keeps one partition of an api's queue.
func StreamName(api string, partition int) string { return fmt.Sprintf("WEIR_%s_%d", api, partition) }

// APIOf returns the api whose queue has the stream as a partition. ok is false for any other stream.
func APIOf(stream string) (api string, ok bool) {
	name, ok := strings.CutPrefix(stream, "WEIR_")
	at := strings.LastIndexByte(name, '_')
	if !ok || at < 1 {
		return "", false
	}
	_, err := strconv.ParseUint(name[at+1:], 10, 16)
	return name[:at], err == nil
}

// PartitionOf maps a key to its partition by FNV-1a over the key's bytes. The mapping must never change.
func PartitionOf(key string, partitions int) int { return int(KeySum(key) % uint64(partitions)) }

// KeySum returns FNV-1a over the key's bytes, which is short enough for every marker. Two keys may have the same sum.
func KeySum(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash never fails
	return h.Sum64()
}

// Subjects of a partition's stream. Jobs have one subject per key, so that the stream counts them per key. Each marker
// has a subject of its own, because the stream's per-subject limit must never refuse a marker. The owner's epoch has a
// subject that no purge of finished jobs touches.
const (
	queueSubjectsOf ingest.Subjects = "weir.q." // weir.q.<api>.<partition>.<kind>.<token>
	ownerSubjectsOf ingest.Subjects = "weir.o." // weir.o.<api>.<partition>

	kindJob    = "j"
	kindIntent = "i"
	kindRetry  = "r"
)

func queueSubjects(api string, partition int) string {
	return queueSubjectsOf.Below(api, strconv.Itoa(partition))
}

// queueSubject returns a subject of the queue. token must be a token that weir made, or a wildcard.
func queueSubject(api string, partition int, kind, token string) string {
	return queueSubjectsOf.Of(api, strconv.Itoa(partition), kind) + "." + token
}

func ownerSubject(api string, partition int) string {
	return ownerSubjectsOf.Of(api, strconv.Itoa(partition))
}

// Metadata that weir writes on the streams of its queues.
const (
	metaPartitions = "weir.partitions"
	metaAPI        = "weir.api"
)

// StreamSettings are the settings that all streams of weir share.
type StreamSettings struct {
	Replicas int
	Dedupe   time.Duration // how long a job's id is known
	Log      *slog.Logger  // nil: nothing is logged
}

// Settings describe the streams of one api's queue.
type Settings struct {
	StreamSettings
	API        string
	Partitions int   // for an api that is new; an existing one keeps its own number
	Capacity   int64 // the largest capacity any key may have
	MaxBody    int64 // bytes
	// FirstSeq has, by name, the first sequence of a stream that is created; 1 for a name that is missing.
	FirstSeq map[string]uint64
}

// maxHeaderBytes is how much room a stream's messages have for a job's headers. JetStream allows 64 KiB too.
const maxHeaderBytes = 64 << 10

// longest returns how many bytes a message of a queue's stream may have, with its headers.
func (s *Settings) longest() int64 { return min(s.MaxBody+maxHeaderBytes, 1<<30) }

// Partitions returns how many partitions the api's queue has. Any of its streams says so, because the first one may
// have been deleted by hand. If none of the first s.Partitions streams exists, it is the number in s.
func Partitions(ctx context.Context, js jetstream.JetStream, s *Settings) (int, error) {
	if n, err := partitionsBy(ctx, js, StreamName(s.API, 0)); err != nil || n > 0 {
		return n, err
	}
	for p := 1; p < s.Partitions; p++ {
		if n, err := partitionsBy(ctx, js, StreamName(s.API, p)); err != nil || n > 0 {
			return n, err
		}
	}
	return s.Partitions, nil
}

// partitionsBy returns how many partitions a stream says that its queue has, 0 if there is no such stream.
func partitionsBy(ctx context.Context, js jetstream.JetStream, name string) (int, error) {
	found, err := stream.Look(ctx, js, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look for stream %s: %w", name, err)
	}
	return partitionsIn(&found.CachedInfo().Config), nil
}

// partitionsIn returns the number of partitions in a stream's metadata, 0 if it has none.
func partitionsIn(c *jetstream.StreamConfig) int {
	n, err := strconv.Atoi(c.Metadata[metaPartitions])
	if err != nil {
		return 0
	}
	return max(0, n)
}

// ensureQueue creates the api's streams if they do not exist. It returns how many there are, and the highest per-key
// ceiling that the server enforces. It may raise an existing stream's ceiling, but never lowers it: JetStream would
// delete the oldest messages of every key that has more.
func ensureQueue(ctx context.Context, js jetstream.JetStream, s Settings) (partitions int, highest int64, err error) {
	if partitions, err = Partitions(ctx, js, &s); err != nil {
		return 0, 0, err
	}
	for p := 0; p < partitions; p++ {
		kept, err := ensureQueueStream(ctx, js, s, partitionOf{number: p, of: partitions, firstSeq: s.FirstSeq[StreamName(s.API, p)]})
		if err != nil {
			return 0, 0, err
		}
		highest = max(highest, kept.MaxMsgsPerSubject)
		if n := partitionsIn(kept); p == 0 && n > 0 {
			partitions = n // the first stream decides: replicas with different settings may create one api at once
		}
	}
	return partitions, highest, nil
}

// partitionOf is one partition of a queue.
type partitionOf struct {
	number, of int
	firstSeq   uint64 // first sequence of its stream, if that is created; 0: 1
}

func ensureQueueStream(ctx context.Context, js jetstream.JetStream, s Settings, p partitionOf) (*jetstream.StreamConfig, error) {
	cfg := jetstream.StreamConfig{
		Name: StreamName(s.API, p.number), FirstSeq: p.firstSeq,
		Description: fmt.Sprintf("weir: waiting jobs of api %s, partition %d of %d, one message each, and messages of weir's own: one names its owner, "+
			"others which calls are under way; a finished job is deleted", s.API, p.number, p.of),
		Subjects:  []string{queueSubjects(s.API, p.number), ownerSubject(s.API, p.number)},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: s.Replicas,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: s.Capacity,
		MaxMsgSize: int32(s.longest()), Duplicates: s.Dedupe,
		AllowDirect: true, AllowAtomicPublish: true,
		Metadata: map[string]string{metaPartitions: strconv.Itoa(p.of), metaAPI: s.API},
	}
	return stream.EnsureStream(ctx, js, stream.Options{Config: cfg, Kind: "queue", Configured: stream.DedupeBound, Log: s.Log})
}

// parseQueueSubject returns the parts of a queue stream's subject. ok is false for the owner's subject.
func parseQueueSubject(subject string) (kind, token string, ok bool) {
	rest, ok := strings.CutPrefix(subject, string(queueSubjectsOf))
	for range 2 { // the api and the partition
		_, rest, _ = strings.Cut(rest, ".")
	}
	kind, token, found := strings.Cut(rest, ".")
	if !ok || !found {
		return "", "", false
	}
	return kind, token, true
}

// Depth is one key's number of unfinished jobs as its stream counts them.
type Depth struct {
	Key  string
	Jobs uint64
}

// Depths asks the servers for every key of an api that has unfinished jobs. It pages through the subjects, which costs
// the servers time in proportion to the number of keys. It is for operators, and must not be called for each job.
func Depths(ctx context.Context, js jetstream.JetStream, api string) ([]Depth, error) {
	var depths []Depth
	for p := 0; ; p++ {
		stream, err := js.Stream(ctx, StreamName(api, p))
		if errors.Is(err, jetstream.ErrStreamNotFound) && p > 0 {
			return depths, nil
		} else if err != nil {
			return nil, fmt.Errorf("stream of api %s: %w", api, err)
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(queueSubject(api, p, kindJob, "*")))
		if err != nil {
			return nil, fmt.Errorf("subjects of stream %s: %w", StreamName(api, p), err)
		}
		for subject, n := range info.State.Subjects {
			if _, token, ok := parseQueueSubject(subject); ok {
				if key, err := ingest.ParseToken(token); err == nil {
					depths = append(depths, Depth{Key: key, Jobs: n})
				}
			}
		}
	}
}
