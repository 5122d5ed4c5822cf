package queue

import (
	"context"
	"errors"
	"fmt"

	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// source is the stream of one partition on its servers. Nothing in it changes after the partition was opened, so it
// needs no lock.
type source struct {
	api    string
	number int    // of the partition
	name   string // of the stream
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

// subject returns the subject of messages of a kind.
func (s *source) subject(kind, token string) string {
	return queueSubject(s.api, s.number, kind, token)
}

// subjects returns the subjects of all jobs and markers.
func (s *source) subjects() string { return queueSubjects(s.api, s.number) }

// owner returns the subject of the owner's epoch.
func (s *source) owner() string { return ownerSubject(s.api, s.number) }

// look returns the stream as it is now.
func (s *source) look(ctx context.Context) (jetstream.Stream, error) {
	now, err := s.js.Stream(ctx, s.name)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", s.name, err)
	}
	return now, nil
}

// fromLeader asks the stream's leader for a message and returns its sequence, 0 if there is none.
func (s *source) fromLeader(ctx context.Context, request string) (seq uint64, err error) {
	m, err := stream.AskLeader(ctx, s.nc, s.name, request)
	if err != nil || m == nil {
		return 0, err
	}
	return m.Seq, nil
}

// nextAfter asks the stream's leader for the sequence of the first message after seq, 0 if there is none.
func (s *source) nextAfter(ctx context.Context, seq uint64) (uint64, error) {
	return s.fromLeader(ctx, fmt.Sprintf(`{"seq":%d,"next_by_subj":">"}`, seq+1))
}

// lastSeq returns the sequence of a subject's last message, 0 if there is none. It asks the stream's leader: with the
// answer of a replica that lags, the condition of a counted put would fail.
func (s *source) lastSeq(ctx context.Context, subject string) (uint64, error) {
	m, err := s.fromLeader(ctx, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
	if err != nil {
		return 0, fmt.Errorf("last message of %s: %w", subject, err)
	}
	return m, nil
}

// storeEpoch stores an owner's epoch if the stream has none, and returns its sequence. Otherwise it fails with
// ErrFenced.
func (s *source) storeEpoch(ctx context.Context, instance string) (seq uint64, err error) {
	ack, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: s.owner(), Data: []byte(instance), Header: nats.Header{
		ingest.HeaderMsgID: {"owner." + nuid.Next()}, stream.HeaderExpectedSeq: {"0"},
	}})
	var api *jetstream.APIError
	if errors.As(err, &api) &&
		(api.ErrorCode == stream.CodeWrongLastSeq || api.ErrorCode == stream.CodeWrongLastSeqConst) {
		err = fmt.Errorf("%w: %w", ErrFenced, err)
	}
	if err != nil {
		return 0, fmt.Errorf("take over %s: %w", s.name, err)
	}
	return ack.Sequence, nil
}
