package docs

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/cli/help"

	"github.com/spf13/cobra"
)

// codeIn are the pieces of code in a text: what stands in backticks, and the lines of blocks of code.
func codeIn(markdown string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(markdown) {
		switch line = strings.TrimRight(line, "\n"); {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			all = append(all, strings.TrimSpace(line))
		}
	}
	text := regexp.MustCompile("(?ms)^```.*?^```|^    .*?$").ReplaceAllString(markdown, "")
	for _, code := range inBackticks(text) {
		all = append(all, strings.Join(strings.Fields(code), " "))
	}
	return all
}

// TestDocsNameWhatThereIs: every variable, metric, stream, bucket, header, event, refusal, field of the configuration, command and flag
// that any document names in code is one that weir has.
func TestDocsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	literals := map[string]bool{}
	for _, f := range parsedCode(t, shipped...) {
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				literals[literal(l)] = true
			}
			return true
		})
	}
	events, codes, paths := valuesOf(t, "EventType", "deadletter"), valuesOf(t, "Code", "ingest"), configurationPaths()
	fields := map[string]bool{}
	for _, path := range paths {
		for name := range strings.SplitSeq(path, ".") {
			fields[name] = true
		}
	}
	found := map[string]int{}
	for doc, text := range docFiles(t) {
		for _, code := range codeIn(text) {
			each := func(what, pattern string, known func(name string) bool) {
				for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(code, -1) {
					if found[what]++; !known(m[1]) {
						t.Errorf("%s: there is no %s %s: %s", doc, what, m[1], code)
					}
				}
			}
			each("variable or stream", `\b(WEIR_[A-Z][A-Z_]*[A-Z])\b`, func(name string) bool { return literals[name] })
			each("metric or bucket", `\b(weir_[a-z_]*[a-z])\b`, func(name string) bool { return literals[name] })
			each("event", `\bweir\.events\.([a-z]+)`, func(name string) bool { return slices.Contains(events, name) })
			each("refusal", `\b(20[45]\d\d)\b`, func(name string) bool { return slices.Contains(codes, name) })
			each("header", `((?:Weir|Nats)-[A-Z][A-Za-z-]*…?)`, func(name string) bool { return isHeader(name, literals) })
			each("field", `^([a-z_]+(?:\.[a-z_]+)+)(?::.*)?$`, func(path string) bool {
				first, _, _ := strings.Cut(path, ".")
				return !fields[first] || strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".journal") || slices.ContainsFunc(paths, func(p string) bool { return p == path || strings.HasSuffix(p, "."+path) })
			})
			each("flag", `^(--[a-z-]+)`, func(name string) bool {
				return !strings.Contains(doc, "/help/") || anyCommandHas(commands.Root(), name[2:]) // other documents speak of weir-torture, too
			})
			each("command", `(?:^|[ /])(weir [a-z][^|#]*)`, func(line string) bool {
				return line == "weir v0.0.0" || checkCommand(line) == nil // the one is a line of a go.mod
			})
		}
	}
	for _, what := range []string{"variable or stream", "metric or bucket", "event", "refusal", "header", "field", "flag", "command"} {
		if found[what] < 3 {
			t.Errorf("only %d of what is called a %s were found: mend this test", found[what], what)
		}
	}
}

// isHeader reports whether weir's code knows a header, in any case: by its whole name, by a prefix, or, if it ends in
// …, by its beginning.
func isHeader(name string, literals map[string]bool) bool {
	begun, open := strings.CutSuffix(strings.ToLower(name), "…")
	for l := range literals {
		l = strings.ToLower(l)
		if l == begun || strings.HasSuffix(l, "-") && len(l) > len("weir-") && strings.HasPrefix(begun, l) || open && strings.HasPrefix(l, begun) {
			return true
		}
	}
	return false
}

// checkCommand says what is wrong with a command line of weir.
func checkCommand(line string) error {
	root := commands.Root()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return err
	}
	if cmd.Name() == "help" && len(rest) == 1 && rest[0] != "TOPIC" {
		if _, ok := help.Lookup(rest[0]); ok {
			return nil
		}
		_, _, err := root.Find(rest)
		return err
	}
	if len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	cmd.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		if long, ok := strings.CutPrefix(name, "--"); ok && cmd.Flags().Lookup(long) == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
		}
		if short, ok := strings.CutPrefix(name, "-"); ok && len(short) == 1 && cmd.Flags().ShorthandLookup(short) == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
		}
	}
	return nil
}

// anyCommandHas reports whether a command, or one below it, has that flag.
func anyCommandHas(cmd *cobra.Command, flag string) bool {
	return cmd.Flags().Lookup(flag) != nil || slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return anyCommandHas(c, flag) })
}

func TestCheckCommand(t *testing.T) {
	t.Parallel()
	for line, right := range map[string]bool{
		"weir dead ls --reason overflow": true, "weir config check -f weir.yaml": true, "weir help limits": true, "weir help dead": true, "weir help TOPIC": true,
		"weir dead lst": false, "weir deadd": false, "weir dead ls --raeson x": false, "weir config check -x": false, "weir help limit": false,
	} {
		if err := checkCommand(line); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}
