package commands

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
	var restored, moved, counted bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Take jobs from NATS and call the configured apis",
		Long: `Runs weir: takes jobs on weir.jobs.<api>.<key>, queues them, and calls the apis at their rates.

Settings come from the environment (WEIR_CONFIG, WEIR_NATS_URL, WEIR_DATA_DIR, …; see ` + "`weir help environment`" + `).
SIGTERM or Ctrl-C stops taking jobs and lets running calls end; a second one exits at once. SIGHUP reads the
configuration file anew: a file that has changed is put in force on every weir of the server, as a restart would do it.

It tells systemd when it is ready, reads its file anew and stops, and answers its watchdog. Exit code 78: the configuration or the
environment is wrong, which another start does not mend.


A store that was put back from a backup is refused: jobs that wait in it may have been called since. --restored parks them as
letters with reason unknown, or calls them again where the api has an idempotency key; every limit of all keys counts as used up until
its period is over, and every key waits one interval. --restored-counted has the limits go by what is counted instead: where Redis
counted on, or the api's own count says that nothing was called. --moved says that the store is what the weir stopped last has left,
copied to another place. Give each to one start only. ` + "`weir help store`" + ` says how to back up and to restore.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.ReadSettings()
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
	cmd.Flags().BoolVar(&restored, "restored", false, "the store was put back from a backup: park what may have been called since")
	cmd.Flags().BoolVar(&counted, "restored-counted", false, "limits of a restored store go by what is counted, and do not count as used up")
	cmd.Flags().BoolVar(&moved, "moved", false, "the store is what the weir stopped last has left, copied to another place")
	return cmd
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

// misconfigured gives errors that another start would not cure their own exit code. A Go program that panics also exits
// with 2, and must be started again.
func misconfigured(err error) error {
	var exit *cli.Exit
	if errors.As(err, &exit) && exit.Code == cli.ExitUsage {
		return cli.Misconfigured(err)
	}
	return err
}
