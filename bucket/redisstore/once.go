package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// once is a client that sends a script again only if a node of a cluster answered that another node has the keys. The
// client of a cluster otherwise repeats a command that got no answer. Redis may have run it, and a slot that is asked
// for twice is lost.
type once struct{ Client }

// EvalSha implements redis.Scripter.
func (o once) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return o.send(ctx, "evalsha", sha1, keys, args)
}

// Eval implements redis.Scripter.
func (o once) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return o.send(ctx, "eval", script, keys, args)
}

func (o once) send(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	argv := make([]any, 0, 3+len(keys)+len(args))
	argv = append(argv, command, script, len(keys))
	for _, k := range keys {
		argv = append(argv, k)
	}
	cmd := unrepeated{redis.NewCmd(ctx, append(argv, args...)...)}
	cmd.SetFirstKeyPos(3)
	_ = o.Process(ctx, cmd) // cmd has the error
	return cmd.Cmd
}

// unrepeated is a command that a client must not repeat.
type unrepeated struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (unrepeated) NoRetry() bool { return true }
