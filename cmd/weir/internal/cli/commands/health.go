package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"

	"github.com/spf13/cobra"
)

// healthBody is the most bytes of an answer that are read.
const healthBody = 4 << 10

func healthCommand() *cobra.Command {
	live, timeout := false, 5*time.Second
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the weir on this machine whether it is ready",
		Long: `Asks the weir on this machine, at WEIR_HTTP_LISTEN, whether it could accept and call a job now. Use it as a
health check for containers, whose image has no other program. Exit code 0: it is ready. 1: it is not. 5: no answer.`,
		Example: "  weir health\n  weir health --live",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := environment.Read()
			if err != nil {
				return cli.Usage(err)
			}
			if settings.HTTPListen == "" {
				return cli.Usage(errors.New("WEIR_HTTP_LISTEN is empty: weir answers no health check then"))
			}
			path := "/readyz"
			if live {
				path = "/livez"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return askHealth(ctx, settings, path, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&live, "live", live, "ask only whether the process answers")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	return cmd
}

func askHealth(ctx context.Context, s *environment.Settings, path string, out io.Writer) error {
	host, port, err := net.SplitHostPort(s.HTTPListen)
	if err != nil {
		return cli.Usage(fmt.Errorf("WEIR_HTTP_LISTEN: %w", err))
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	at := "http://" + net.JoinHostPort(host, port) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return cli.Usage(fmt.Errorf("WEIR_HTTP_LISTEN: %w", err))
	}
	if s.HTTPToken.IsSet() {
		// With the token, the answer also says why weir is not ready.
		req.Header.Set("Authorization", "Bearer "+s.HTTPToken.Reveal())
	}
	// No proxy: it would get the token, and its answer would stand for weir's.
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(req)
	if err != nil {
		return cli.Unreachable(fmt.Errorf("no answer from %s: does weir serve have the same WEIR_HTTP_LISTEN? %w", at, err))
	}
	defer func() { _ = answer.Body.Close() }() // no error matters after the body was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, healthBody))
	if err != nil {
		return cli.Unreachable(fmt.Errorf("the answer of %s broke off: %w", at, err))
	}
	said := strings.TrimSpace(string(text))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", at, cli.Visible(said))
	}
	if _, err := fmt.Fprintln(out, cli.Visible(said)); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
