package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/worker"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Take jobs from NATS and call the configured apis",
		Long: `Runs weir: takes jobs on weir.jobs.<api>.<key>, queues them, and calls the apis at their rates.

Settings come from the environment (WEIR_CONFIG, WEIR_NATS_URL, WEIR_DATA_DIR, …; see ` + "`weir help environment`" + `).
SIGTERM or Ctrl-C stops taking jobs and lets running calls end; a second one exits at once. SIGHUP reads the
configuration file anew: a file that has changed is put in force on every weir of the server, as a restart would do it.

It tells systemd when it is ready, reads its file anew and stops, and answers its watchdog. Exit code 78: the configuration or the
environment is wrong, which another start does not mend.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.ReadSettings()
			if err != nil {
				return cli.Misconfigured(err)
			}
			log := worker.NewLogger(settings)
			worker.LogWarnings(log, "", settings.Warnings)
			if err := worker.SetMemory(settings, log); err != nil {
				return cli.Misconfigured(err)
			}
			return serve(cmd.Context(), settings, log)
		},
	}
}

func serve(ctx context.Context, s *config.Settings, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := &signals{log: log, to: supervisor{log}, cancel: cancel}
	quit := told.listen()
	defer quit()
	w, err := worker.Start(ctx, s, log)
	if err != nil {
		return misconfigured(classify(err))
	}
	worker.LogWarnings(log, w.Config().File, w.Config().Warnings)
	log.Info("ready", "apis", len(w.Config().APIs), "version", cli.Version())
	told.ready(w)
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { told.to.watch(watched) })
	defer watch.Wait()
	defer stop()
	return w.Wait()
}

// misconfigured gives what would not get better by another start a code of its own: a Go program that panics ends with 2, too, and
// that one is to be started again.
func misconfigured(err error) error {
	var exit *cli.Exit
	if errors.As(err, &exit) && exit.Code == cli.ExitUsage {
		return cli.Misconfigured(err)
	}
	return err
}
