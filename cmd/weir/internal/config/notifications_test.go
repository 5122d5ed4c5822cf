package config

import (
	"testing"
	"time"
)

// TestChatsGetGroups checks the default of group: a chat gets one post a minute, and a program gets each event.
func TestChatsGetGroups(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(`
notifications:
  chat: {url: "https://hooks.slack.com/${env:CHAT}", format: slack}
  hasty: {url: "https://hooks.slack.com/${env:CHAT}", group: 5s, format: slack}
  program: {url: "https://example.com/", secret: "${env:HOOK}"}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{"chat": time.Minute, "hasty": 5 * time.Second, "program": 0}
	for _, d := range c.Notifications {
		if d.Group != want[d.Name] {
			t.Errorf("%s: events are collected for %s, want %s", d.Name, d.Group, want[d.Name])
		}
	}
}
