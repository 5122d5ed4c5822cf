package main

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
)

// addCall tells a letter's last call for people.
func addCall(t *cli.Table, c *deadletter.LastCall) {
	if c == nil {
		return
	}
	if !c.Started.IsZero() {
		text := "began " + cli.ClockTime(c.Started)
		if c.CutBy == deadletter.CutByDeath && c.Bytes < 0 {
			text = "was to begin after " + cli.ClockTime(c.Started)
		}
		t.Row("last call", text)
	}
	if c.Bytes >= 0 {
		text := cli.Count(c.Bytes, "byte")
		if c.Connection != "" {
			text += fmt.Sprintf(" over a %s connection", c.Connection)
		}
		if !c.Wrote.IsZero() {
			text += ", the last at " + cli.ClockTime(c.Wrote)
		}
		t.Row("sent", text)
	}
	if c.CutBy != "" {
		text := "by " + cutText(c.CutBy)
		if !c.Ended.IsZero() {
			text += " at " + cli.ClockTime(c.Ended)
		}
		t.Row("cut", text)
	}
}

func cutText(by deadletter.Cutter) string {
	switch by {
	case deadletter.CutByTimeout:
		return "weir, when the api's timeout had passed"
	case deadletter.CutByReset:
		return "a reset: the api or something on the way broke the connection off"
	case deadletter.CutByClose:
		return "the api, which closed the connection without an answer"
	case deadletter.CutByDeath:
		return "the end of the weir that called"
	case deadletter.CutByNetwork:
		return "the network"
	}
	return string(by)
}
