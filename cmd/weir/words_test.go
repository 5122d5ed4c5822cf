package main

import (
	"fmt"
	"testing"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
)

// TestMissingSecretNamesFileAndLine: what serve refuses is told as config check tells it.
func TestMissingSecretNamesFileAndLine(t *testing.T) {
	c, err := config.Parse([]byte("apis:\n  a:\n    url: https://a.example.com\n    headers: {X: \"${env:NO_SUCH_SECRET_HERE}\"}\n    bucket: {rate: 1/s, capacity: 1}\n"),
		config.Options{Name: "deploy/my.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "deploy/my.yaml:4: apis.a.headers.X: environment variable NO_SUCH_SECRET_HERE is not set: provide it where weir serve runs"
	if err := refuseUnsupported(c); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

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
