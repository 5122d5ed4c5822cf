package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// mostAsked is how many values Damaged asks for at once.
const mostAsked = 32

// Damaged returns the sorted keys of a key-value bucket whose newest values the bucket's leader counts and cannot read.
// If the bucket has one value for each key, such a key must not be written: nats-server would try to delete the former
// value without end, and answer no more requests for the stream. Other processes may use the bucket meanwhile.
//
// A value that cannot be read is read again after the given time, because a server that had no file descriptor left may
// have one then. js is a JetStream of FromLeader. Damaged asks for each value. It blocks until the leader has answered
// each question, for about a minute each at most, or until ctx ends.
func Damaged(ctx context.Context, js jetstream.JetStream, bucket string, again time.Duration) (keys []string, err error) {
	if keys, err = damagedKeys(ctx, js, "KV_"+bucket, "$KV."+bucket+".", again); err != nil {
		return nil, fmt.Errorf("look for damaged values in the key-value bucket %s: %w", bucket, err)
	}
	return keys, nil
}

func damagedKeys(ctx context.Context, js jetstream.JetStream, name, prefix string, again time.Duration) (keys []string, err error) {
	source, err := Look(ctx, js, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	info, err := establish(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return source.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	})
	if err != nil {
		return nil, err
	}
	suspects, err := unreadable(ctx, js, name, slices.Collect(maps.Keys(info.State.Subjects)))
	if err != nil || len(suspects) == 0 {
		return nil, err
	}
	if !Sleep(ctx, again) {
		return nil, context.Cause(ctx)
	}
	// A key that was deleted, and came back between two questions of the first reading, looks damaged there, too.
	damaged, err := unreadable(ctx, js, name, suspects)
	for _, subject := range damaged {
		keys = append(keys, subject[len(prefix):])
	}
	slices.Sort(keys)
	return keys, err
}

// unreadable returns the subjects whose newest messages the leader counts and cannot read.
func unreadable(ctx context.Context, js jetstream.JetStream, name string, subjects []string) (found []string, err error) {
	var mu sync.Mutex // guards found
	asked, asking := errgroup.WithContext(ctx)
	asked.SetLimit(mostAsked)
	for _, subject := range subjects {
		asked.Go(func() error {
			readable, err := establish(asking, func(ctx context.Context) (bool, error) {
				_, readable, err := End(ctx, js.Conn(), name, subject)
				return readable, err
			})
			if err == nil && !readable {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, subject)
			}
			return err
		})
	}
	err = asked.Wait()
	return found, err
}
