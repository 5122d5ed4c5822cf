package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Bounds of one group commit. JetStream allows 1,000 messages, but groups larger than these gain nothing more from
// sharing an fsync.
const (
	maxGroup      = MaxExchange
	maxGroupBytes = 4 << 20
)

// TakeGroup takes the messages of one group commit from the head of waiting. It takes at most 256, and no more once
// they have 4 MiB. size returns a message's size in bytes, and is called once for each message taken. The caller must
// hold the lock that guards waiting.
func TakeGroup[T any](waiting *[]T, size func(*T) int) []T {
	all := *waiting
	n, bytes := 0, 0
	for n < len(all) && n < maxGroup && (n == 0 || bytes < maxGroupBytes) {
		bytes += size(&all[n])
		n++
	}
	group := slices.Clone(all[:n])
	*waiting = slices.Delete(all, 0, n) // Delete clears the freed elements
	return group
}

// commitTries bounds how often a message without an answer is sent again; its message id keeps it from being stored
// twice.
const commitTries = 3

// Commit stores msgs in one stream, with one fsync for all if the stream accepts them all. If the stream refuses the
// group because of one message (a full key, a known id), Commit sends each message by itself. Every message must carry
// a Nats-Msg-Id. The answer says for each message whether it is stored, refused, or in doubt.
func (x *Exchange) Commit(ctx context.Context, msgs []*nats.Msg) []Answer {
	return x.commitWhile(ctx, msgs, Every)
}

// commitWhile is Commit, except that it sends message i again only if may(i) reports true. Otherwise the answer is
// ErrNotNow.
func (x *Exchange) commitWhile(ctx context.Context, msgs []*nats.Msg, may func(i int) bool) []Answer {
	if x.disk != nil {
		return x.again(ctx, msgs, resending{may: may}) // one flush serves all messages, so a batch would gain nothing
	}
	start := time.Now()
	if x.groups.choose(len(msgs)) {
		answers, err := x.atomic(ctx, msgs)
		if err == nil {
			x.groups.learn(&x.groups.together, len(msgs), time.Since(start))
			return answers
		}
		return x.again(ctx, msgs, resending{earlier: err, may: may})
	}
	answers := x.again(ctx, msgs, resending{may: may})
	x.groups.learn(&x.groups.apart, len(msgs), time.Since(start))
	return answers
}

// grouping measures which way to store is cheaper on this stream, for a group of each size. One atomic batch shares one
// fsync but is written twice. On a stream with one copy it is first written to files of its own, which costs as much as
// many messages. Single messages are all under way at once. So with one copy, large batches are up to ten times as fast
// if the store syncs every write, and all others are slower. With three copies the two differ little
// (deploy/decisions/003-group-commit.md).
type grouping struct {
	together, apart cost
	turn            int // groups since the dearer way was tried
	tries           int
}

// After tryEvery groups the dearer way is tried again, with the next group of at most tryAtMost messages, or with a
// larger one for which it may cost at most tryAtCost times as much. The first tries come sooner, because the
// cost of a group must be known for more than one size.
const (
	tryEvery   = 256
	tryFirst   = 4
	tryAtMost  = 32
	tryAtCost  = 4
	leastGroup = 2
)

// mostTries bounds the count of tries. By then they have become as rare as tryEvery says.
const mostTries = 16

func (g *grouping) choose(n int) (together bool) {
	if n < leastGroup {
		return false
	}
	g.turn++
	if !g.together.known() {
		return true
	}
	if !g.apart.known() {
		return n > tryAtMost
	}
	batch, single := g.together.of(n), g.apart.of(n)
	used, unused := batch, g.apart.least(n)
	if together = batch < single; !together {
		used, unused = single, g.together.least(n)
	}
	if g.turn >= min(tryEvery, tryFirst<<g.tries) && (n <= tryAtMost || unused <= tryAtCost*used) {
		g.turn, g.tries = 0, min(g.tries+1, mostTries)
		return !together
	}
	return together
}

func (g *grouping) learn(c *cost, n int, took time.Duration) {
	if n >= leastGroup {
		c.learn(n, took)
	}
}

// cost is the cost of one way to store: a time for the group, and a time for each of its messages. It is fitted to the
// groups stored so far, and the latest weigh most. The fields are sums over groups, each weighted by its age. The zero
// cost knows of no group.
type cost struct{ groups, sizes, squares, took, product float64 }

// forget is the weight of a group's predecessor, relative to the group's own. mostSurprise bounds what a group counts,
// as a multiple of its expected cost, so that one election does not outweigh many groups.
const (
	forget       = 15.0 / 16
	mostSurprise = 8
)

func (c *cost) learn(n int, lasted time.Duration) {
	size, took := float64(n), float64(max(1, lasted))
	if c.known() {
		took = min(took, mostSurprise*c.of(n))
	}
	c.groups = c.groups*forget + 1
	c.sizes = c.sizes*forget + size
	c.squares = c.squares*forget + size*size
	c.took = c.took*forget + took
	c.product = c.product*forget + size*took
}

func (c *cost) known() bool { return c.groups > 0 }

// of returns the expected cost of a group of n messages, in nanoseconds. If all known groups were about equally large,
// it is in proportion to n.
func (c *cost) of(n int) float64 {
	each := c.took / c.sizes
	if spread := c.spread(); spread > 0 {
		each = max(0, min(each, (c.groups*c.product-c.sizes*c.took)/spread))
	}
	return (c.took-each*c.sizes)/c.groups + each*float64(n)
}

// least returns the least cost of a group of n messages that the known groups allow, in nanoseconds. If all of them
// were about equally large, a group may cost the same whatever its size.
func (c *cost) least(n int) float64 {
	if c.spread() == 0 {
		return min(c.of(n), c.took/c.groups)
	}
	return c.of(n)
}

// spread measures how much the sizes of the known groups differ. It is 0 if they differ too little to tell a group's
// own cost from that of its messages.
func (c *cost) spread() float64 {
	spread := c.groups*c.squares - c.sizes*c.sizes
	if spread <= c.groups*c.groups {
		return 0
	}
	return spread
}

// atomic publishes one atomic batch. After an error nothing of the batch is stored. After ErrUnanswered that is
// unknown.
func (x *Exchange) atomic(ctx context.Context, msgs []*nats.Msg) ([]Answer, error) {
	id := nuid.Next()
	for i, m := range msgs {
		m.Header[headerBatchID] = []string{id}
		m.Header[headerBatchSeq] = []string{strconv.Itoa(i + 1)}
	}
	last := len(msgs) - 1
	msgs[last].Header[headerBatchCommit] = []string{"1"}
	defer func() {
		for _, m := range msgs {
			delete(m.Header, headerBatchID)
			delete(m.Header, headerBatchSeq)
			delete(m.Header, headerBatchCommit)
		}
	}()
	ack := readAck(x.Do(ctx, msgs, func(i int) bool { return i == last })[last])
	if ack.Err != nil {
		return nil, ack.Err
	}
	if ack.Seq < uint64(len(msgs)) {
		return nil, fmt.Errorf("%w: impossible answer", ErrUnanswered)
	}
	answers := make([]Answer, len(msgs))
	for i := range answers {
		answers[i].Seq = ack.Seq - uint64(last-i) // the messages of a batch have consecutive sequences
	}
	return answers, nil
}

// resending says how an earlier try of the messages ended, and which of them may be sent again (see commitWhile).
// earlier is nil if there was no earlier try.
type resending struct {
	earlier error
	may     func(i int) bool
}

// Singly publishes each message by itself, all under way at once, and sends messages without an answer again.
func (x *Exchange) Singly(ctx context.Context, msgs []*nats.Msg) []Answer {
	return x.again(ctx, msgs, resending{may: Every})
}

// again is Singly for messages of which an earlier try may have stored some.
func (x *Exchange) again(ctx context.Context, msgs []*nats.Msg, r resending) []Answer {
	if x.disk == nil {
		return x.tries(ctx, msgs, r)
	}
	written := func() {}
	if x.stream != "" {
		written = x.disk.Writing(x.stream)
	}
	answers := x.tries(ctx, msgs, r)
	written()
	x.flush(ctx, answers)
	return answers
}

// flush waits until the disk has the messages whose answers have no error. It includes duplicates, because the original
// may not be on disk yet. If the disk fails, the answers become ErrUnanswered.
func (x *Exchange) flush(ctx context.Context, answers []Answer) {
	flushed := ""
	var err error
	for i, a := range answers {
		if a.Err != nil {
			continue
		}
		if a.Stream != flushed {
			flushed, err = a.Stream, x.disk.Flush(ctx, a.Stream)
			x.stream = a.Stream
		}
		if err != nil {
			answers[i].Err = fmt.Errorf("%w: %w", ErrUnanswered, err)
		}
	}
}

// tries sends the messages, and sends messages without an answer again, commitTries times in all.
func (x *Exchange) tries(ctx context.Context, msgs []*nats.Msg, r resending) []Answer {
	answers := make([]Answer, len(msgs))
	unknown := make([]bool, len(msgs))
	open := make([]int, len(msgs))
	for i := range msgs {
		open[i], unknown[i] = i, errors.Is(r.earlier, ErrUnanswered)
	}
	for try := 1; len(open) > 0; try++ {
		if r.earlier != nil || try > 1 {
			open = slices.DeleteFunc(open, func(i int) bool {
				if r.may(i) {
					return false
				}
				answers[i].Err = ErrNotNow
				return true
			})
		}
		send := make([]*nats.Msg, len(open))
		for k, i := range open {
			send[k] = msgs[i]
		}
		replies := x.Do(ctx, send, Every)
		left := open[:0]
		noResponders := false
		for k, i := range open {
			answers[i] = readAck(replies[k])
			err := answers[i].Err
			if errors.Is(err, ErrUnanswered) || errors.Is(err, ErrRetry) {
				left = append(left, i)
				noResponders = noResponders || errors.Is(err, ErrRetry)
			}
			if unknown[i] = unknown[i] || errors.Is(err, ErrUnanswered); unknown[i] && !settles(err) {
				answers[i].Err = InDoubt(err)
			}
		}
		open = left
		if ctx.Err() != nil || try == commitTries {
			return answers
		}
		if noResponders && !Sleep(ctx, time.Duration(try)*250*time.Millisecond) {
			return answers
		}
	}
	return answers
}

// settles reports whether an answer decides whether the message is stored, whatever earlier tries did. It does if the
// stream checked the message's id before it answered. A stream checks an expected sequence before the id, so ErrStale
// decides nothing.
func settles(err error) bool {
	return err == nil || errors.Is(err, ErrFull) || errors.Is(err, ErrNotKnown)
}

// InDoubt returns err as an ErrUnanswered: the tries that ended with err may or may not have stored the message.
func InDoubt(err error) error {
	if !errors.Is(err, ErrUnanswered) {
		return fmt.Errorf("%w; at last: %w", ErrUnanswered, err)
	}
	return err
}

// Sleep blocks for d and returns true, or returns false as soon as ctx has ended. If d is not positive it does not
// block.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
