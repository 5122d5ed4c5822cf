package commands

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/worker"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var restored, moved, counted bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Accept jobs from NATS and call the configured apis",
		Long: `Runs weir: accepts jobs on weir.jobs.<api>.<key>, queues them, and calls the apis at their rates.

Settings come from the environment (WEIR_CONFIG, WEIR_NATS_URL, WEIR_DATA_DIR, …; see
` + "`weir help environment`" + `). On SIGTERM or Ctrl-C weir accepts no more jobs and waits for running calls; a second
signal ends it at once. On SIGHUP weir reads the configuration file again, as a restart would: if the file has changed,
it applies to every weir on the server.

weir tells systemd when it is ready, reloads and stops, and answers its watchdog. Exit code 78: the configuration or the
environment is wrong, which a restart does not fix.

weir refuses to start on a restored backup: jobs that wait in it may have been called since. With --restored it parks
them as letters with the reason unknown, or calls them again if the api has an idempotency key. Every shared limit then
counts as used up until its period is over, and every key waits until a full bucket has drained. --restored-counted
makes the limits use the existing counts instead: if Redis kept its count, or the api's own count says that nothing was
called. --moved says that the store is the newest one, copied to another disk after weir stopped. Use each flag
for one start only. ` + "`weir help store`" + ` describes backups and how to restore them.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := environment.Read()
			if err != nil {
				return cli.Misconfigured(err)
			}
			if settings.Restored, settings.Moved, settings.Counted = restored, moved, counted; restored && moved {
				return cli.Usage(errors.New("--restored and --moved say different things of the store: give one"))
			}
			log := worker.NewLogger(settings)
			worker.LogLibraries(log)
			worker.LogWarnings(log, "", settings.Warnings)
			if err := worker.SetMemory(settings, log); err != nil {
				return cli.Misconfigured(err)
			}
			return serve(cmd.Context(), settings, log)
		},
	}
	cmd.Flags().BoolVar(&restored, "restored", false, "the store is a restored backup: park jobs that may have been called since")
	cmd.Flags().BoolVar(&counted, "restored-counted", false, "limits of a restored store use the existing counts instead of counting as used up")
	cmd.Flags().BoolVar(&moved, "moved", false, "the store is the newest one, copied to another disk after weir stopped")
	return cmd
}

func serve(ctx context.Context, s *environment.Settings, log *slog.Logger) error {
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

// misconfigured turns the exit code of wrong usage into ExitConfig, for errors that a restart does not fix. Wrong usage
// has exit code 2, as has a Go program that panics, and that program must be restarted.
func misconfigured(err error) error {
	var exit *cli.Exit
	if errors.As(err, &exit) && exit.Code == cli.ExitUsage {
		return cli.Misconfigured(err)
	}
	return err
}
