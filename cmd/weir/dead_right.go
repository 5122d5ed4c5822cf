package main

import (
	"context"
	"fmt"
	"os"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"
)

// takeLetterRight waits for the right of a process that has died, which takes some seconds, and refuses while one is
// alive. Give it back.
func takeLetterRight(ctx context.Context, c *connect.Connection) (*deadletter.Right, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "somewhere"
	}
	return letters.TakeRight(ctx, c, fmt.Sprintf("%s on %s, process %d", cli.User(), host, os.Getpid()))
}
