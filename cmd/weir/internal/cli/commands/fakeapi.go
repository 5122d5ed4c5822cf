package commands

import (
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"

	"github.com/spf13/cobra"
)

// fakeAPICommand returns a command that runs the fake paid api as a process of its own, for tests that check its
// ledger.
func fakeAPICommand() *cobra.Command {
	var o fakeapi.Options
	var latency time.Duration
	var repeats, script, refuse, vendor string
	var tokens, input, output int64
	var polls int
	cmd := &cobra.Command{
		Use:    "fake-api",
		Short:  "Run a fake paid api with a ledger of its own, for tests",
		Hidden: true,
		Args:   cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if script != "" {
				if o.Script, err = fakeapi.ParseSteps([]byte(script)); err != nil {
					return cli.Usage(err)
				}
			}
			if polls >= 0 {
				operations := &fakeapi.Operations{Polls: polls, Name: func(r *fakeapi.Request) string { return strconv.FormatInt(r.Number, 10) }}
				o.Script = operations.Behind(o.Script)
			}
			if refuse != "" {
				o.Script = fakeapi.RefuseWhile(refuse, o.Script)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Vendor = fakeapi.Vendor(vendor)
			for _, l := range []fakeapi.UseLimit{
				{Name: "tokens", Count: tokens, Weigh: fakeapi.Weigh{Input: 1, Output: 1}},
				{Name: "input_tokens", Count: input, Weigh: fakeapi.Weigh{Input: 1}},
				{Name: "output_tokens", Count: output, Weigh: fakeapi.Weigh{Output: 1}},
			} {
				if l.Per, l.Scope = time.Minute, fakeapi.AllKeys; l.Count > 0 {
					o.Limits = append(o.Limits, l)
				}
			}
			o.Idempotency.Repeat = fakeapi.Repeat(repeats)
			o.Latency.Mean, o.Latency.Min = latency, latency
			o.Announce = cmd.OutOrStdout()
			return fakeapi.Serve(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address to listen on")
	f.StringVar(&o.Ledger, "ledger", "", "append-only ledger file; none: in memory")
	f.StringVar(&o.Key.Header, "key-header", "", "request header with the key (default X-Key)")
	f.IntVar(&o.Key.Segment, "key-segment", 0, "instead: segment of the path with the key, from 1")
	f.Int64Var(&o.Price, "price", 0, "millionths of the currency for a billed call")
	f.IntVar(&o.KeepBody, "keep-body", 0, "bytes recorded of each body")
	f.IntVar(&o.Limit.Count, "limit", 0, "calls of a key in any --per; more are answered 429 (0: no limit)")
	f.DurationVar(&o.Limit.Per, "per", 0, "period of --limit")
	f.StringVar(&vendor, "vendor", "", "answer as this vendor documents: "+vendors())
	f.Int64Var(&tokens, "tokens", 0, "tokens of all keys in any minute; calls beyond are answered 429 (0: no limit)")
	f.Int64Var(&input, "input-tokens", 0, "input tokens of all keys in any minute; calls beyond are answered 429 (0: no limit)")
	f.Int64Var(&output, "output-tokens", 0, "output tokens of all keys in any minute; calls beyond are answered 429 (0: no limit)")
	f.StringVar(&repeats, "repeats", "", "what a repeated idempotency key gets: replayed, awaited (default: carried out and billed)")
	f.StringVar(&script, "script", "", "what becomes of which calls: steps as a JSON array (default: all succeed)")
	f.StringVar(&o.Idempotency.Other, "other-id-header", "", "another request header with an idempotency key")
	f.IntVar(&polls, "operations", -1, "answer a POST with 202, and so many polls of its operation, named by the number of the call, with running (-1: none)")
	f.StringVar(&refuse, "refuse-while", "", "answer 401 as long as this file is there")
	f.DurationVar(&latency, "latency", 0, "how long a call takes")
	return cmd
}

// vendors lists the vendors as which the fake api can answer.
func vendors() string {
	var names []string
	for _, v := range fakeapi.Vendors() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}
