//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"weir/cmd/internal/contest"
)

// These are the settings of River's own benchmark (`river bench`): workers that wait for a job, pauses between fetches,
// jobs in an insert. It says that River's defaults are much slower.
const (
	riverWorkers  = 2000
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverBatch    = 5000
)

// riverJob is one job of River.
type riverJob struct {
	Body string `json:"body"`
}

func (riverJob) Kind() string { return "call" }

// riverWorker makes a job's call.
type riverWorker struct {
	river.WorkerDefaults[riverJob]
	caller contest.Caller
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	return w.caller.Call(ctx, []byte(job.Args.Body))
}

func riverRole(ctx context.Context, s contest.Settings) (contest.Do, error) {
	pool, err := pgxpool.New(ctx, s.Store)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	driver := riverpgxv5.New(pool)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if !s.Worker {
		client, err := river.NewClient(driver, &river.Config{Logger: log})
		if err != nil {
			return nil, fmt.Errorf("make a client of River: %w", err)
		}
		return func(ctx context.Context, o contest.Order) error { return insertRiver(ctx, client, o) }, nil
	}
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("make River's tables: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("make River's tables: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{caller: contest.NewCaller(s.API, s.AtOnce)})
	client, err := river.NewClient(driver, &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Logger: log, Workers: workers,
		Queues: map[string]river.QueueConfig{s.Queue: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return nil, fmt.Errorf("make a client of River: %w", err)
	}
	return func(ctx context.Context, o contest.Order) error {
		if o.Do == "rest" {
			return client.Stop(ctx)
		}
		return client.Start(ctx)
	}, nil
}

// insertRiver inserts in batches with COPY, the fastest way that River has.
func insertRiver(ctx context.Context, client *river.Client[pgx.Tx], o contest.Order) error {
	batch := make([]river.InsertManyParams, 0, min(riverBatch, o.Jobs))
	opts := &river.InsertOpts{Queue: o.Queue}
	for job := range o.Jobs {
		batch = append(batch, river.InsertManyParams{Args: riverJob{Body: string(contest.Body(job, o.Body))}, InsertOpts: opts})
		if len(batch) < cap(batch) && job < o.Jobs-1 {
			continue
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		batch = batch[:0]
	}
	return nil
}
