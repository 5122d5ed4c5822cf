package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A message whose checksum is wrong cannot be replaced. The server would have to delete it first, but cannot read it,
// and then accepts no more writes to the stream. So MendBucket creates a key-value bucket with such a message again,
// without the message. It first copies all other messages to another stream, so that a crash in between loses nothing.

// mendingStream is the stream with the copies. Its last message, of the subject mendingWhole, says that the copies are
// complete.
const (
	mendingStream = "WEIR_MENDING"
	mendingWhole  = "weir.mending.whole"
)

// mended describes the bucket that is created again.
type mended struct {
	Config jetstream.StreamConfig `json:"config"`
	Lost   []string               `json:"lost"`  // the keys whose values cannot be read
	Empty  []string               `json:"empty"` // those of them that get an empty value
}

// MendBucket creates a key-value bucket again without its damaged values, and returns their keys. It stores an empty
// value under each damaged key that keep reports. damaged is what Damaged has returned. If it is empty, MendBucket only
// ends what an interrupted MendBucket began. The bucket must have one value per key, and js must wait for the disk: see
// OnDisk. No other process may use the bucket meanwhile.
func MendBucket(
	ctx context.Context, js jetstream.JetStream, bucket string, damaged []string, keep func(key string) bool,
) (lost []string, err error) {
	if lost, err = mendBucket(ctx, js, "KV_"+bucket, "$KV."+bucket+".", damaged, keep); err != nil {
		return nil, fmt.Errorf("create the damaged bucket %s again: %w", bucket, err)
	}
	return lost, nil
}

func mendBucket(
	ctx context.Context, js jetstream.JetStream, name, prefix string, damaged []string, keep func(key string) bool,
) ([]string, error) {
	end, readable, err := End(ctx, js.Conn(), mendingStream, mendingWhole)
	var api *jetstream.APIError
	switch {
	case err == nil && !readable:
		return nil, fmt.Errorf("the copies of its values in the stream %s are damaged, too: restore a backup", mendingStream)
	case err == nil && end.Seq > 0: // a former start was interrupted
		return remakeBucket(ctx, js, name, prefix)
	case err == nil:
		if err := js.DeleteStream(ctx, mendingStream); err != nil {
			return nil, err
		}
	case !errors.As(err, &api) || api.ErrorCode != jetstream.JSErrCodeStreamNotFound:
		return nil, err
	}
	if len(damaged) == 0 {
		return nil, nil
	}
	source, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	info, err := source.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, err
	}
	m := mended{Config: info.Config, Lost: damaged}
	for _, key := range damaged {
		if keep(key) {
			m.Empty = append(m.Empty, key)
		}
	}
	m.Config.FirstSeq = info.State.LastSeq + 1 // no revision is used twice
	var values []*LeaderMessage
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		value, err := AskLeader(ctx, js.Conn(), name, fmt.Sprintf(`{"last_by_subj":%q}`, subject))
		switch {
		case err != nil:
			return nil, err
		case value != nil:
			values = append(values, value)
		case !slices.Contains(damaged, subject[len(prefix):]):
			return nil, fmt.Errorf("the value of %s could be read a moment ago, and cannot be read now", subject[len(prefix):])
		}
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: mendingStream, Subjects: []string{"weir.mending.>"}}); err != nil {
		return nil, err
	}
	for _, value := range values {
		if err := publishJSON(ctx, js, "weir.mending.value", value); err != nil {
			return nil, err
		}
	}
	if err := publishJSON(ctx, js, mendingWhole, m); err != nil {
		return nil, err
	}
	return remakeBucket(ctx, js, name, prefix)
}

func publishJSON(ctx context.Context, js jetstream.JetStream, subject string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		panic("stream: a copy that JSON cannot carry: " + err.Error())
	}
	_, err = js.Publish(ctx, subject, data)
	return err
}

// remakeBucket creates a bucket from its copies. It may be called again after a failure.
func remakeBucket(ctx context.Context, js jetstream.JetStream, name, prefix string) ([]string, error) {
	whole, err := AskLeader(ctx, js.Conn(), mendingStream, `{"last_by_subj":"`+mendingWhole+`"}`)
	if err != nil {
		return nil, err
	}
	if whole == nil {
		return nil, fmt.Errorf("the copies in the stream %s are gone", mendingStream)
	}
	var m mended
	if err := json.Unmarshal(whole.Data, &m); err != nil {
		return nil, err
	}
	if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	if _, err := js.CreateStream(ctx, m.Config); err != nil {
		return nil, err
	}
	for seq := uint64(1); seq < whole.Seq; seq++ {
		copied, err := AskLeader(ctx, js.Conn(), mendingStream, fmt.Sprintf(`{"seq":%d}`, seq))
		if err != nil || copied == nil {
			return nil, errors.Join(err, fmt.Errorf("copy %d of %s cannot be read", seq, mendingStream))
		}
		var value LeaderMessage
		if err := json.Unmarshal(copied.Data, &value); err != nil {
			return nil, err
		}
		msg := &nats.Msg{Subject: value.Subject, Data: value.Data}
		if len(value.Headers) > 0 {
			if msg.Header, err = nats.DecodeHeadersMsg(value.Headers); err != nil {
				return nil, err
			}
			for _, condition := range []string{HeaderExpectedSeq, HeaderExpectedSubject, "Nats-Msg-Id"} {
				delete(msg.Header, condition)
			}
		}
		if _, err := js.PublishMsg(ctx, msg); err != nil {
			return nil, err
		}
	}
	for _, key := range m.Empty {
		if _, err := js.Publish(ctx, prefix+key, nil); err != nil {
			return nil, err
		}
	}
	return m.Lost, js.DeleteStream(ctx, mendingStream)
}
