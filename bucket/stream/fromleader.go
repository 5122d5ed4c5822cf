package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// leaderPause is how long FromLeader waits before it asks for a stream without a leader again.
const leaderPause = 250 * time.Millisecond

// ErrNoLeader reports that servers answered for a stream, but not its leader.
var ErrNoLeader = errors.New("the stream has no leader")

// FromLeader returns a JetStream whose information about a stream comes from the stream's leader. While a stream has no
// leader, nats-server lets every member answer, and a member may lack the last messages. The method Stream, and Info of
// a stream that it returned, accept no such answer. They ask again until the leader answers, and fail as they do if no
// server answers; the error then also wraps ErrNoLeader.
func FromLeader(js jetstream.JetStream) jetstream.JetStream { return led{js} }

type led struct{ jetstream.JetStream }

// Stream implements jetstream.StreamManager.
func (l led) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	var s jetstream.Stream
	_, err := l.ask(ctx, name, func(ctx context.Context) (_ *jetstream.StreamInfo, err error) {
		if s, err = l.JetStream.Stream(ctx, name); err != nil {
			return nil, err
		}
		return s.CachedInfo(), nil
	})
	if err != nil {
		return nil, err
	}
	return ledStream{s, l}, nil
}

type ledStream struct {
	jetstream.Stream
	js led
}

// Info implements jetstream.Stream.
func (s ledStream) Info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	return s.js.ask(ctx, s.CachedInfo().Config.Name, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return s.Stream.Info(ctx, opts...)
	})
}

// ask repeats a request for a stream's information until the stream's leader answers it, a server refuses it, or the
// time of one request is up.
func (l led) ask(
	ctx context.Context, name string, request func(context.Context) (*jetstream.StreamInfo, error),
) (*jetstream.StreamInfo, error) {
	if _, bound := ctx.Deadline(); !bound { // as in the client
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.Options().DefaultTimeout)
		defer cancel()
	}
	for leaderless := false; ; leaderless = true {
		info, err := request(ctx)
		switch {
		case err == nil && leaderAnswered(info.Cluster):
			return info, nil
		case err != nil && (!leaderless || ctx.Err() == nil):
			return nil, err
		case err != nil, !Sleep(ctx, leaderPause):
			return nil, fmt.Errorf("stream %s: %w: %w", name, ErrNoLeader, ctx.Err())
		}
	}
}

// StateOf asks a stream's leader for the stream's state, with the number of messages of each subject that matches
// filter. It asks again while the stream has no leader. It blocks for at most AnswerWait.
func StateOf(ctx context.Context, nc *nats.Conn, stream, filter string) (*jetstream.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWait)
	defer cancel()
	for {
		msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, fmt.Appendf(nil, `{"subjects_filter":%q}`, filter))
		if err != nil {
			return nil, fmt.Errorf("state of stream %s: %w", stream, err)
		}
		var answer struct {
			Error   *jetstream.APIError    `json:"error"`
			State   *jetstream.StreamState `json:"state"`
			Cluster *jetstream.ClusterInfo `json:"cluster"`
		}
		switch err := json.Unmarshal(msg.Data, &answer); {
		case err != nil, answer.Error == nil && answer.State == nil:
			return nil, fmt.Errorf("state of stream %s: unreadable answer", stream)
		case answer.Error != nil:
			return nil, fmt.Errorf("state of stream %s: %w", stream, answer.Error)
		case leaderAnswered(answer.Cluster):
			return answer.State, nil
		}
		if !Sleep(ctx, leaderPause) {
			return nil, fmt.Errorf("stream %s: %w: %w", stream, ErrNoLeader, ctx.Err())
		}
	}
}

// leaderAnswered reports whether a stream's information comes from its leader. nats-server names the leader that it
// knows, and as replicas it lists the members other than itself. A server without a cluster, and the only member of a
// group of one, name themselves.
func leaderAnswered(c *jetstream.ClusterInfo) bool {
	return c == nil || c.Leader != "" && !slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool {
		return p.Name == c.Leader
	})
}
