package deadview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
)

// rightWait is how long to wait for the right to end letters: inquiries hold it meanwhile, one after another.
const rightWait = time.Minute

// takeRight takes the right to end letters. It waits some seconds for the right of a process that has died, and refuses
// while one is alive. The caller must give it back. holder is named to other processes that want the right meanwhile.
func takeRight(ctx context.Context, c *connect.Connection, holder string) (*deadletter.Right, error) {
	kv, err := c.Control(ctx)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, rightWait)
	defer cancel()
	right, err := deadletter.TakeRight(waiting, kv, holder)
	var held *lease.HeldError
	if errors.As(err, &held) {
		return nil, cli.Refused(fmt.Errorf("%s redrives or purges dead letters now: wait until it has ended", held.Holder))
	} else if err != nil {
		return nil, c.Explain(err)
	}
	return right, nil
}
