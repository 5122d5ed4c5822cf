// Command weir calls paid APIs for other programs: never faster than any limit, never twice, and never losing a job.
package main

import (
	"context"
	"os"

	"weir/cmd/weir/internal/cli/commands"
)

func main() { os.Exit(commands.Run(context.Background(), os.Args[1:])) }
