package help

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTopics checks that each topic has a name that can be typed and a line that fits beside it, and links only to
// existing topics.
func TestTopics(t *testing.T) {
	topics := Topics()
	if !slices.IsSortedFunc(topics, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the topics are not in the order of their names")
	}
	for _, topic := range topics {
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(topic.Name) {
			t.Errorf("the name %q is not easily typed", topic.Name)
		}
		if n := utf8.RuneCountInString(topic.Short); n < 10 || n > 70 || strings.HasSuffix(topic.Short, ".") {
			t.Errorf("%s: what it is about takes %d characters: %q", topic.Name, n, topic.Short)
		}
		if found, ok := Lookup(topic.Name); !ok || found != topic {
			t.Errorf("%s is not found", topic.Name)
		}
		for _, m := range link.FindAllStringSubmatch(topic.Text(), -1) {
			if to := topicRef.FindStringSubmatch(m[2]); to != nil {
				if _, ok := Lookup(to[1]); !ok {
					t.Errorf("%s leads to the topic %s, which is not there", topic.Name, to[1])
				}
			}
		}
	}
	if _, ok := Lookup("no-such-topic"); ok {
		t.Error("a topic is found that is not there")
	}
}

// mostWords is how many words a topic may have: seven minutes of reading. Topics that are one long table are exempt.
const mostWords = 1500

// TestTopicsAreShort checks the length of every topic except those of fields and variables, which users look things up
// in.
func TestTopicsAreShort(t *testing.T) {
	t.Parallel()
	for _, topic := range Topics() {
		if n := len(strings.Fields(topic.Text())); n > mostWords && topic.Name != "fields" && topic.Name != "environment" {
			t.Errorf("topic %s has %d words, at most %d", topic.Name, n, mostWords)
		}
	}
}

// TestTopicsAreMarkdownThatRenderKnows checks that topics use only the Markdown that Render supports. Render would show
// anything else unchanged, or lose it.
func TestTopicsAreMarkdownThatRenderKnows(t *testing.T) {
	for _, topic := range Topics() {
		columns, fenced := 0, false
		for n, line := range strings.Split(topic.Text(), "\n") {
			at := func(what string) { t.Errorf("%s.md:%d: %s: %s", topic.Name, n+1, what, line) }
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if fenced || strings.HasPrefix(line, "    ") {
				continue
			}
			switch {
			case strings.ContainsAny(line, "\t\r") || strings.TrimRight(line, " ") != line:
				at("blanks that nobody sees")
			case regexp.MustCompile(`^( +[-*] |[*+] |> |!\[|<[a-z])`).MatchString(line):
				at("Render does not know this")
			case utf8.RuneCountInString(line) > 132 && !strings.HasPrefix(line, "|"):
				at("the line is too long to be read in the repository")
			case strings.Count(line, "`")%2 == 1 && strings.HasPrefix(line, "|"):
				at("code that does not end")
			}
			if !strings.HasPrefix(line, "|") {
				columns = 0
				continue
			}
			if got := len(cells(line)); columns != 0 && got != columns {
				at("another number of columns than above")
			} else {
				columns = got
			}
		}
		if fenced {
			t.Errorf("%s.md: a block of code does not end", topic.Name)
		}
	}
}

func TestATopicThatDoesNotBeginWithItsNameIsFoundOut(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the topic was taken")
		}
	}()
	read("limits", "# Limits\n")
}
