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

// rightWait bounds how long takeRight waits for the right to end letters. Inquiries hold the right one after another.
const rightWait = time.Minute

// takeRight takes the right to end letters. While an inquiry holds the right, takeRight waits, at most rightWait. If
// the holder has died, takeRight waits some seconds until the holder's lease expires. It fails if another live process
// holds the right for anything else. Other processes see holder as the holder's name. The caller must give the right
// back.
func takeRight(ctx context.Context, c *connect.Connection, holder string) (*deadletter.Right, error) {
	kv, err := c.Control(ctx)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, rightWait)
	defer cancel()
	right, err := deadletter.TakeRight(waiting, c.Conn, kv, holder)
	var held *lease.HeldError
	if errors.As(err, &held) {
		return nil, cli.Refused(fmt.Errorf("%s redrives or purges dead letters now: wait until it has ended", held.Holder))
	} else if err != nil {
		return nil, c.Explain(err)
	}
	return right, nil
}
