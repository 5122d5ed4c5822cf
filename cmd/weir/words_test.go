package main

import (
	"fmt"
	"testing"

	"weir/cmd/weir/internal/cli"
)

func TestWrongNumberOfArguments(t *testing.T) {
	for _, c := range []struct {
		names []string
		given int
		want  string
	}{
		{[]string{"API", "KEY"}, 1, "weir takes API and KEY: weir"},
		{[]string{"API", "[KEY]"}, 0, "weir takes API, and perhaps KEY: weir"},
		{[]string{"API", "[KEY]"}, 1, "<nil>"},
		{[]string{"[VERSION]"}, 2, "weir takes nothing, or VERSION: weir"},
		{[]string{"[VERSION]"}, 0, "<nil>"},
		{nil, 1, "weir takes no arguments: weir"},
	} {
		cmd := rootCommand()
		cmd.Run, cmd.RunE = nil, nil
		if got := fmt.Sprint(cli.Takes(c.names...)(cmd, make([]string, c.given))); got != c.want {
			t.Errorf("%d for %v: %s, want %s", c.given, c.names, got, c.want)
		}
	}
}
