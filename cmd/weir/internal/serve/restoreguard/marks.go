package restoreguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Mark is how far a stream had come when it was read.
type Mark struct {
	Last uint64    `json:"last"` // sequence of the last message, even if that was deleted
	At   time.Time `json:"at"`   // when the last message was stored
	Born time.Time `json:"born"` // when the stream was created
}

// marksOf returns the marks of streams. It skips streams that do not exist.
func marksOf(ctx context.Context, js jetstream.JetStream, names []string) (map[string]Mark, error) {
	marks := make(map[string]Mark, len(names))
	for _, name := range names {
		s, err := stream.Look(ctx, js, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		info := s.CachedInfo()
		marks[name] = Mark{Last: info.State.LastSeq, At: info.State.LastTime.UTC(), Born: info.Created.UTC()}
	}
	return marks, nil
}

// streams returns the sorted names of weir's streams, except the bucket of leases, because leases need not last.
func streams(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	lister := js.StreamNames(ctx)
	var names []string
	for name := range lister.Name() {
		if strings.HasPrefix(name, "WEIR_") || name == "KV_weir_config" || name == "KV_weir_control" {
			names = append(names, name)
		}
	}
	if err := lister.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// behind compares the present marks with noted ones. It returns descriptions of the streams that end before their noted
// end. renewed describes the streams that are missing or were created anew since the note; these streams have lost all
// earlier messages.
func behind(noted, is map[string]Mark, since time.Time) (behind, renewed []string) {
	for name, was := range noted {
		now, there := is[name]
		switch {
		case !there:
			renewed = append(renewed, fmt.Sprintf("%s is gone, which had come to message %d by %s", name, was.Last, since.UTC().Format(time.RFC3339)))
		case !now.Born.Equal(was.Born) && now.Born.After(since):
			renewed = append(renewed, fmt.Sprintf("%s was made anew at %s, and had come to %d before", name, now.Born.Format(time.RFC3339), was.Last))
		case now.Last < was.Last:
			behind = append(behind, fmt.Sprintf("%s ends at %d and had come to %d", name, now.Last, was.Last))
		case !now.Born.Equal(was.Born):
			behind = append(behind, fmt.Sprintf("%s is of %s and was of %s", name, now.Born.Format(time.RFC3339), was.Born.Format(time.RFC3339)))
		}
	}
	slices.Sort(behind)
	slices.Sort(renewed)
	return behind, renewed
}
