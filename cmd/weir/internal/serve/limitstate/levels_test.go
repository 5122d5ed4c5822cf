package limitstate

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
)

// TestRefreshTellsOfNow checks that a refresh returns the present levels, and not those of up to a second before. A
// store that does not answer and a watch that has ended do not delay it.
func TestRefreshTellsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, hangs := int64(6), false
		watch := &levelWatch{
			api: "credit", heard: func(error) {}, used: func([]bucket.Level) {}, log: slog.New(slog.DiscardHandler),
			gap:   func(string) string { return "" },
			asked: make(chan chan<- struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
			read: func(ctx context.Context) ([]bucket.Level, error) {
				if hangs {
					stream.Sleep(ctx, time.Hour)
					return nil, errors.New("no answer")
				}
				return []bucket.Level{{Limit: bucket.Limit{Name: "calls"}, Used: used, Count: 200}}, nil
			},
		}
		levels := &Levels{}
		levels.add(watch)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go func() { _ = watch.run(ctx) }()
		synctest.Wait()
		used = 9
		levels.Refresh(t.Context())
		if told := levels.Shown("credit")[0].Used; told != 9 {
			t.Errorf("%d are told, and 9 are used", told)
		}
		hangs = true
		levels.Refresh(t.Context())
		end()
		synctest.Wait()
		levels.Refresh(t.Context())
	})
}
