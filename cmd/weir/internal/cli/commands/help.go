package commands

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/internal/cli/terminal"

	"github.com/spf13/cobra"
)

// widestHelp is the most characters of a line of help. Longer lines are hard to read.
const widestHelp = 100

// addHelp adds the help command to the root. The command shows cobra's help about commands, and weir's topics.
func addHelp(root *cobra.Command) {
	var word string
	about := &cobra.Command{
		Use:   "help [COMMAND | TOPIC | --search WORD]",
		Short: "Help about any command, and the reference of weir by topics",
		Long: `Shows the help of a command, or a topic of the reference: formatted on a terminal, otherwise as Markdown.
Without arguments it lists the commands and topics. With --search it shows each passage of the reference that
contains the word, and each command whose help contains it.`,
		Example:           "  weir help limits\n  weir help dead redrive\n  weir help configuration | less\n  weir help --search burst",
		ValidArgsFunction: completeHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("search"):
				return showHelp(cmd, args)
			case len(args) > 0 || strings.TrimSpace(word) == "":
				return cli.Usage(errors.New("--search takes one word, or a phrase in quotation marks"))
			}
			return searchHelp(cmd.Root(), cmd.OutOrStdout(), cmd.ErrOrStderr(), strings.TrimSpace(word))
		},
	}
	about.Flags().StringVar(&word, "search", "", "show what the reference and the commands' help say of a word or phrase")
	root.SetHelpCommand(about)
	ofCommand := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		ofCommand(cmd, args)
		cmd.SetOut(out)
		if !cmd.HasParent() {
			listTopics(&text)
		}
		// The error is ignored, as in cobra: it means that the reader has gone.
		_, _ = io.WriteString(out, help.Fit(text.String(), min(terminal.Width(out), widestHelp)))
	})
}

// showHelp shows the topic or command that args name. If args is empty, it lists all commands and topics.
func showHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if topic, ok := help.Lookup(args[0]); ok {
			return showTopicAndCommand(cmd, topic)
		}
	}
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return cli.Usage(noHelp(cmd.Root(), args))
	}
	about.InitDefaultHelpFlag()
	if err := about.Help(); err != nil {
		return fmt.Errorf("write the help: %w", err)
	}
	return nil
}

// showTopicAndCommand writes a topic. If a command has the same name, as for results and events, it then also writes
// the command's help.
func showTopicAndCommand(cmd *cobra.Command, topic help.Topic) error {
	if err := showTopic(cmd.OutOrStdout(), topic); err != nil {
		return err
	}
	about, rest, err := cmd.Root().Find([]string{topic.Name})
	if err != nil || len(rest) > 0 || about == cmd.Root() {
		return nil //nolint:nilerr // there is no such command
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "\n%s: ", about.CommandPath()); err != nil {
		return fmt.Errorf("write the help: %w", err)
	}
	about.InitDefaultHelpFlag()
	if err := about.Help(); err != nil {
		return fmt.Errorf("write the help: %w", err)
	}
	return nil
}

// showTopic writes a topic: formatted if out is a terminal, otherwise unchanged.
func showTopic(out io.Writer, topic help.Topic) error {
	text := topic.Text()
	if width := terminal.Width(out); width > 0 {
		text = help.Render(text, help.Style{Width: min(width, widestHelp), Bold: terminal.Styled()})
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write the topic: %w", err)
	}
	return nil
}

// noHelp returns the error that there is no such topic or command. The error lists the topics and commands.
func noHelp(root *cobra.Command, args []string) error {
	var commands, topics []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			commands = append(commands, c.Name())
		}
	}
	for _, t := range help.Topics() {
		topics = append(topics, t.Name)
	}
	return fmt.Errorf("there is no topic and no command %q\ntopics: %s\ncommands: %s", strings.Join(args, " "),
		strings.Join(topics, ", "), strings.Join(commands, ", "))
}

// listTopics writes the topics in the format of cobra's list of commands.
func listTopics(out io.Writer) {
	longest := 0
	for _, t := range help.Topics() {
		longest = max(longest, len(t.Name))
	}
	text := "\nTopics:\n"
	for _, t := range help.Topics() {
		text += fmt.Sprintf("  %-*s   %s\n", longest, t.Name, t.Short)
	}
	_, _ = io.WriteString(out, text+"\nUse \"weir help TOPIC\" to read one.\n") // writing to a buffer cannot fail
}

// completeHelp returns the topics and commands that can follow args.
func completeHelp(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	offer := func(name, short string) {
		if strings.HasPrefix(name, begun) {
			found = append(found, cobra.CompletionWithDesc(name, short))
		}
	}
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, c := range about.Commands() {
		if c.IsAvailableCommand() {
			offer(c.Name(), c.Short)
		}
	}
	if len(args) == 0 {
		for _, t := range help.Topics() {
			offer(t.Name, t.Short)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
