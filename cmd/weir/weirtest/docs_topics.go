package weirtest

import (
	"testing"

	"weir/cmd/weir/internal/help"
)

// The tests of the reference, which `weir help` shows: what the code has by a name that users meet, its topic names, and what a topic
// names, the code has. Both lists are taken from the code and the text, and compared.

// TopicText is a topic's Markdown.
func TopicText(t *testing.T, name string) string {
	t.Helper()
	topic, ok := help.Lookup(name)
	if !ok {
		t.Fatalf("there is no topic %s", name)
	}
	return topic.Text()
}
