package weirtest

import (
	"testing"

	"weir/cmd/weir/internal/cli/help"
)

// The functions below serve the tests of the topics, which `weir help` shows. A topic must name everything that users
// meet by name, and everything that a topic names must exist in the code. The tests extract both lists, from the code
// and from the text, and compare them.

// TopicText returns a topic's Markdown.
func TopicText(t *testing.T, name string) string {
	t.Helper()
	topic, ok := help.Lookup(name)
	if !ok {
		t.Fatalf("there is no topic %s", name)
	}
	return topic.Text()
}
