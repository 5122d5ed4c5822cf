package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/top"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// completedKeys is how many keys completion offers. It offers the keys with the deepest buckets.
const completedKeys = 100

// completion returns the values that one argument or flag may have.
type completion func(cmd *cobra.Command, args []string) []cobra.Completion

// addCompletion adds completion to every command: for the arguments that the command's usage names, and for the flags
// that choose apis, keys and reasons. It must be called last, because it skips commands that already have their own
// completion.
func addCompletion(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		addCompletion(child)
	}
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		places := strings.Fields(cmd.Use)[1:]
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			at := len(args)
			if last := len(places) - 1; last >= 0 && strings.Contains(places[last], "...") {
				at = min(at, last)
			}
			if at >= len(places) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return offered(completionOf(cmd, strings.Trim(places[at], "[].")), cmd, args, begun)
		}
	}
	for name, place := range map[string]string{"api": "API", "key": "KEY", "reason": "REASON", "by": "BY", "sort": "SORT", "state": "STATE", "account": "ACCOUNT"} {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		complete := completionOf(cmd, place)
		err := cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if api := cmd.Flags().Lookup("api"); place == "KEY" && api != nil {
				args = []string{api.Value.String()}
			}
			return offered(complete, cmd, args, begun)
		})
		if err != nil {
			panic("a flag is completed twice: " + err.Error())
		}
	}
}

// completionOf returns the completion for the argument with this name, nil if there is none.
func completionOf(cmd *cobra.Command, place string) completion {
	switch place {
	case "BY":
		return listed(spend.Groupings())
	case "SORT":
		return listed(top.Orders())
	case "STATE":
		return listed(joblist.States())
	case "ID":
		return newestJobs
	case "JOB":
		if cmd.Name() == "cancel" {
			return queuedJobs
		}
		return keptResults
	case "SEQ":
		return keptLetters
	case "NAME":
		return redrives
	case "API":
		return apiNames
	case "ACCOUNT":
		if cmd.Name() == "shares" {
			return sharedAccounts
		}
		return accountNames
	case "KEY":
		return deepKeys
	case "SITE=PERCENT":
		return siteShares
	case "VERSION":
		return keptVersions
	case "REASON":
		return listed(deadletter.Reasons())
	}
	return nil
}

// listed returns the completion for a fixed set of words.
func listed[W ~string](words []W) completion {
	return func(*cobra.Command, []string) (names []cobra.Completion) {
		for _, w := range words {
			names = append(names, cobra.Completion(w))
		}
		return names
	}
}

// offered returns the completions that begin with the typed text. It never offers file names.
func offered(complete completion, cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if complete == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := slices.DeleteFunc(complete(cmd, args), func(c cobra.Completion) bool { return !strings.HasPrefix(c, begun) })
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// sharedAccounts returns the accounts with shares.
func sharedAccounts(cmd *cobra.Command, _ []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
			for i := range current.Accounts {
				if a := &current.Accounts[i]; len(a.Shares) > 0 {
					names = append(names, a.Name)
				}
			}
		}
		return nil
	})
	return names
}

// siteShares returns the sites of the account that the first argument names, each with its share in the file.
func siteShares(cmd *cobra.Command, args []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok && len(args) > 0 {
			if a, ok := current.Account(args[0]); ok {
				for _, s := range a.Shares {
					names = append(names, fmt.Sprintf("%s=%d%%", s.Site, s.Percent))
				}
			}
		}
		return nil
	})
	return names
}

// apiNames returns the configured apis. It returns none if no server answers, because completion cannot show an error.
func apiNames(cmd *cobra.Command, _ []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
			names = current.Names()
		}
		return nil
	})
	return names
}

// accountNames returns the configured accounts. It returns none if no server answers.
func accountNames(cmd *cobra.Command, _ []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
			for i := range current.Accounts {
				names = append(names, current.Accounts[i].Name)
			}
		}
		return nil
	})
	return names
}

// deepKeys returns the keys with the deepest buckets of an api, which is the first argument.
func deepKeys(_ *cobra.Command, args []string) (keys []cobra.Completion) {
	if len(args) == 0 || args[0] == "" {
		return nil
	}
	_ = connect.With(func(c *connect.Connection) error {
		list, err := admin.Keys(c, args[0], completedKeys)
		if err != nil {
			return err
		}
		for i := range list.Buckets {
			if key := list.Buckets[i].Key; cli.Visible(key) == key {
				keys = append(keys, key)
			}
		}
		return nil
	})
	return keys
}

// keptVersions returns the stored versions of the configuration, the newest first.
func keptVersions(cmd *cobra.Command, _ []string) (versions []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		entries, err := admin.ConfigHistory(cmd.Context(), c)
		if err != nil {
			return err
		}
		for _, entry := range slices.Backward(entries) {
			h := admin.PastVersionOf(entry)
			versions = append(versions, cobra.CompletionWithDesc(strconv.FormatUint(h.Version, 10), "from "+cli.Visible(h.From)))
		}
		return nil
	})
	return versions
}
