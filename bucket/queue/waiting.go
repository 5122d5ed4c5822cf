package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"weir/bucket/stream"
	"weir/ingest"
)

// Frontier holds, by partition, up to which sequence the streams of an api's queue were read.
type Frontier []uint64

// Asked selects some of an api's unfinished jobs.
type Asked struct {
	API   string
	Keys  []string // nil: all
	After Frontier // only jobs after it; nil: all
}

// readAtOnce is how many partitions are read in parallel.
const readAtOnce = 8

// Arrivals passes the header of every selected job to take. It returns how far it has read: later jobs come after that.
// take must be safe for concurrent use. Arrivals reads no bodies, and its memory does not grow with the queue. An api
// without a queue has no jobs. If a stream ends before the point up to which it was read, it has lost its end, and
// Arrivals reads it from the beginning.
func Arrivals(ctx context.Context, js jetstream.JetStream, of Asked, take func(key string, h nats.Header)) (Frontier, error) {
	first, err := js.Stream(ctx, StreamName(of.API, 0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("queue of api %s: %w", of.API, err)
	}
	partitions, err := strconv.Atoi(first.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || partitions < 1 {
		return nil, fmt.Errorf("queue of api %s: stream %s does not say how many partitions there are", of.API, StreamName(of.API, 0))
	}
	place := make(Frontier, partitions)
	copy(place, of.After)
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readAtOnce)
	for p := range partitions {
		subjects := of.subjects(p, partitions)
		if len(subjects) == 0 {
			continue
		}
		reading.Go(func() (err error) {
			place[p], err = arrivalsIn(ctx, js, StreamName(of.API, p), subjects, place[p], take)
			return err
		})
	}
	return place, reading.Wait()
}

// subjects returns the subjects of the selected jobs of one partition.
func (of *Asked) subjects(p, partitions int) []string {
	if of.Keys == nil {
		return []string{queueSubject(of.API, p, kindJob, "*")}
	}
	var subjects []string
	for _, key := range of.Keys {
		if PartitionOf(key, partitions) == p {
			subjects = append(subjects, queueSubject(of.API, p, kindJob, ingest.Token(key)))
		}
	}
	return subjects
}

func arrivalsIn(ctx context.Context, js jetstream.JetStream, name string, subjects []string, after uint64, take func(key string, h nats.Header)) (upTo uint64, err error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	last := s.CachedInfo().State.LastSeq
	switch {
	case last < after:
		after = 0
	case last == after:
		return last, nil
	}
	err = stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: s, Last: last, Clear: true, From: jetstream.OrderedConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1, HeadersOnly: true,
	}}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		if _, token, ok := parseQueueSubject(msg.Subject()); ok {
			if key, err := ingest.ParseToken(token); err == nil {
				take(key, msg.Headers())
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return last, nil
}

// CountJobs returns how many unfinished jobs a stream has now, without opening its queue. api is "" if the stream is no
// queue. It reads no job and blocks for some round trips. It asks the stream's leader, since a consumer's pending count
// may come from a replica that lags. It counts the messages that are not jobs and subtracts them, because jobs may have
// a million subjects.
func CountJobs(ctx context.Context, js jetstream.JetStream, name string) (api string, jobs int, err error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
	}
	if api = s.CachedInfo().Config.Metadata[metaAPI]; api == "" || s.CachedInfo().State.Msgs == 0 {
		return api, 0, nil
	}
	left := s.CachedInfo().State.Msgs
	for _, others := range []string{queueSubjectsOf.Match(api, "", kindIntent, ""), queueSubjectsOf.Match(api, "", kindRetry, ""), ownerSubjectsOf.Below(api)} {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(others))
		if err != nil {
			return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
		}
		for _, n := range info.State.Subjects {
			left -= min(left, n)
		}
	}
	return api, int(min(left, 1<<31-1)), nil
}

// NewestJobs selects unfinished jobs of a partition.
type NewestJobs struct {
	Key   string    // "": of all keys
	Since time.Time // accepted then or later; zero: all
	UpTo  time.Time // accepted then or before; zero: all
	Most  int       // how many headers are read at most
}

// Newest passes the selected jobs of the partition's stream to take, the newest first and without their bodies, until
// take fails; stream.ErrEnough ends it without an error. known is false for a job that the reader has not delivered
// yet. Newest blocks until all are read, or ctx ends.
func (p *Partition) Newest(ctx context.Context, n NewestJobs, take func(e Entry, known bool) error) (stream.Reach, error) {
	token := "*"
	if n.Key != "" {
		token = ingest.Token(n.Key)
	}
	subject := p.source.subject(kindJob, token)
	read := stream.Newest{
		JetStream: p.source.js, Stream: p.source.name, Subject: subject, Since: n.Since, Most: n.Most, Bare: true,
	}
	if !n.UpTo.IsZero() {
		later, err := stream.FirstSince(ctx, p.source.nc, p.source.name, subject, n.UpTo.Add(time.Nanosecond))
		if err != nil {
			return stream.Reach{}, err
		}
		if later != nil {
			read.Before = later.Seq
		}
	}
	return read.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		_, token, ok := parseQueueSubject(msg.Subject())
		key, err := ingest.ParseToken(token)
		if !ok || err != nil {
			return nil //nolint:nilerr // it is no job
		}
		seq := meta.Sequence.Stream
		e := Entry{Key: key, Seq: seq, Header: msg.Headers(), Time: meta.Timestamp}
		return take(e, seq <= p.contents.readTo())
	})
}
