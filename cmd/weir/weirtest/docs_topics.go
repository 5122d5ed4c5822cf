package weirtest

import (
	"testing"

	"weir/cmd/weir/internal/cli/help"
)

// The tests of the reference, which `weir help` shows. A topic must name everything that users meet by name, and the
// code must have everything that a topic names. Both lists are extracted, from the code and from the text, and
// compared.

// TopicText returns a topic's Markdown.
func TopicText(t *testing.T, name string) string {
	t.Helper()
	topic, ok := help.Lookup(name)
	if !ok {
		t.Fatalf("there is no topic %s", name)
	}
	return topic.Text()
}
