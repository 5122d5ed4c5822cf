package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
)

func serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Take jobs from NATS and call the configured apis",
		Long: `Runs weir: takes jobs on weir.jobs.<api>.<key>, queues them, and calls the apis at their rates.

Settings come from the environment (WEIR_CONFIG, WEIR_NATS_URL, WEIR_DATA_DIR, …; see the README).
SIGTERM or Ctrl-C stops taking jobs and lets running calls end; a second one exits at once. SIGHUP reads the
configuration file anew: a file that has changed is put in force on every weir of the server, as a restart would do it.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.ReadSettings()
			if err != nil {
				return cli.Usage(err)
			}
			log := newLogger(settings)
			logWarnings(log, "", settings.Warnings)
			if err := setMemory(settings, log); err != nil {
				return cli.Usage(err)
			}
			return serve(cmd.Context(), settings, log)
		},
	}
}

func serve(ctx context.Context, s *config.Settings, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := &signals{log: log, cancel: cancel}
	quit := told.listen()
	defer quit()
	w, err := StartWorker(ctx, s, log)
	if err != nil {
		return classify(err)
	}
	logWarnings(log, w.config.File, w.config.Warnings)
	log.Info("ready", "apis", len(w.config.APIs), "version", cli.Version())
	told.ready(w)
	return w.Wait()
}

// levelAlways is of lines that are logged at every level, as information: on port 0 nothing else tells the address.
const levelAlways = slog.Level(100)

func newLogger(s *config.Settings) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == levelAlways {
			a.Value = slog.AnyValue(slog.LevelInfo)
		}
		return a
	}}
	if s.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": cli.Version()},
	})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}
