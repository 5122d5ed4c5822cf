package commands

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/embedded"

	"github.com/spf13/cobra"
)

// natsServerCommand returns a command that runs the embedded nats-server as a process of its own, for tests that kill
// it.
func natsServerCommand() *cobra.Command {
	o := embedded.Options{MaxPayload: 8 << 20}
	durability := ""
	cmd := &cobra.Command{
		Use:    "nats-server",
		Short:  "Run a nats-server with JetStream, for tests",
		Hidden: true,
		Args:   cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.SyncAlways = environment.Durability(durability) == environment.DurabilityAlways
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			server, err := embedded.Start(ctx, o)
			if err != nil {
				return err
			}
			defer server.Shutdown()
			if at := server.MonitorURL(); at != "" {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "monitoring %s\n", at); err != nil {
					return err
				}
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "listening %s\n", server.ClientURL()); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:4222", "address to listen on")
	f.StringVar(&o.Monitor, "monitor", "", "address at which it tells its own counts over HTTP (default: none)")
	f.StringVar(&o.Dir, "dir", "nats-data", "directory of its store")
	// weir's streams reserve 27 GiB, which is more than four fifths of a small disk.
	f.Int64Var(&o.MaxStore, "max-store", 100<<30, "most bytes of its store; 0: four fifths of the disk")
	f.StringVar(&o.Cluster.Name, "name", "", "name of this server in a cluster (default: no cluster)")
	f.StringVar(&o.Cluster.Listen, "cluster-listen", "127.0.0.1:0", "address for the other servers of the cluster")
	f.StringSliceVar(&o.Cluster.Routes, "routes", nil, "addresses of the other servers of the cluster")
	f.StringVar(&durability, "durability", string(environment.DurabilityAlways), "when it syncs: always or interval")
	return cmd
}
