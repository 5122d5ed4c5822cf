package torture

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/network"
	"weir/cmd/weir-torture/internal/plan"
)

// torment executes the strikes, with a calm spell before and after them. When it returns, every replica is up.
func (f *fleet) torment(ctx, faults context.Context, p *plan.Plan) error {
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() { defer close(kept); f.keepUp(keeping) }()
	f.teardown.onEnd(func() error { stop(); <-kept; return nil })
	if err := f.beCalm(ctx); err != nil {
		return err
	}
	for i, s := range p.Strikes {
		if !stream.Sleep(faults, s.Pause) {
			break
		}
		if err := f.strike(ctx, s, p.Changes); err != nil {
			return fmt.Errorf("%s: %w", s.Kind, err)
		}
		if done := i + 1; done%10 == 0 {
			f.record.talk("%d of %d", done, len(p.Strikes))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := f.operator.restore(ctx); err != nil {
		return err
	}
	return f.beCalm(ctx)
}

// beCalm waits until the fleet is whole and has caught up, and lets it work for a while. With a backlog each replica
// would call as fast as it can, so the calls would not show its share. Under a quota there is always a backlog, and no
// share is measured.
func (f *fleet) beCalm(ctx context.Context) error {
	if err := f.awaitReplicas(ctx); err != nil {
		return err
	}
	if f.programs.o.Quota > 0 { // jobs wait for the quota
		if !stream.Sleep(ctx, calmFor) {
			return context.Cause(ctx)
		}
		return nil
	}
	for limit := time.Now().Add(catchesUp); !f.hasCaughtUp(ctx) || !f.allTakePart(ctx); {
		if time.Now().After(limit) {
			f.record.note("no calm spell: the fleet did not catch up within %v, or a replica that was cut off took no part", catchesUp)
			return nil
		}
		if !stream.Sleep(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	if !stream.Sleep(ctx, settles) {
		return context.Cause(ctx)
	}
	before, from := f.record.exits(), time.Now()
	stream.Sleep(ctx, calmFor)
	if f.record.exits() == before {
		f.calm = append(f.calm, plan.Span{From: from, To: time.Now()})
	}
	return ctx.Err()
}

// hasCaughtUp reports whether few jobs wait, besides those that wait for a pack and those whose operation runs. It
// returns false if the number is unknown.
func (f *fleet) hasCaughtUp(ctx context.Context) bool {
	waiting, err := queued(ctx, f.js)
	o := f.programs.o
	few := 2 * o.Keys
	if o.Pack > 0 {
		few += o.Jobs * int(plan.PackWait/time.Second)
	}
	if o.Operations {
		few += o.Jobs * (plan.OperationPolls + 2) * int(plan.OperationEvery/time.Second)
	}
	return err == nil && waiting <= few
}

// allTakePart reports whether no replica is cut off from an api or from Redis. Such a replica leaves its partitions to
// others for some time after a cut, which grows with the number of cuts.
func (f *fleet) allTakePart(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	registry, err := lease.FindRegistry(ctx, f.js)
	if err != nil || registry == nil {
		return false
	}
	members, err := registry.Members(ctx)
	return err == nil && !slices.ContainsFunc(members, func(m lease.Sighting) bool { return len(m.Member.CutOff) > 0 })
}

// strike executes one fault and waits until the fleet has recovered.
func (f *fleet) strike(ctx context.Context, s plan.Strike, changes []plan.Change) error {
	done := judge.Strike{Kind: s.Kind, At: time.Now()}
	var err error
	switch s.Kind {
	case plan.RollNodes, plan.KillNode, plan.CutNode:
		done.Target, err = f.strikeNode(ctx, s)
	case plan.KillRedis, plan.LoseRedis, plan.SetBackRedis:
		done.Target, err = "redis", f.strikeRedis(ctx, s)
	case plan.FlipNode, plan.CutPower, plan.RestartDeleted, plan.ScaleStream: // ofStores
		err = storeFaults{f}.strike(ctx, s, &done)
	case plan.ChangeConfig:
		c := changes[s.Target]
		done.Target, err = c.Setting, f.operator.change(ctx, c)
	default:
		done.Target, err = f.strikeReplica(ctx, s)
	}
	if err != nil {
		return err
	}
	done.Ended = time.Now()
	if err := f.awaitReplicas(ctx); err != nil {
		return err
	}
	called, err := f.awaitCalls(ctx, done.Ended)
	if err != nil {
		return err
	}
	resumed := time.Since(done.Ended)
	if called {
		done.Over = time.Now()
	}
	if s.Kind != plan.ChangeConfig { // operator.change counts changes
		f.record.count(done.Kind)
	}
	behind, err := f.awaitCopies(ctx, judge.CurrentWithin)
	if behind != "" {
		f.record.note("after %v not every copy of a stream was current: %s", judge.CurrentWithin, behind)
	}
	if s.Kind.OfStores() {
		done.Behind = cmp.Or(done.Behind, behind)
	}
	f.strikes = append(f.strikes, done)
	f.record.talk("%s (%s): %v, and %v until every key was called again", done.Kind, done.Target,
		done.Ended.Sub(done.At).Round(100*time.Millisecond), resumed.Round(100*time.Millisecond))
	return err
}

// awaitCalls waits until every key was called after a moment. It returns false after ResumesWithin.
func (f *fleet) awaitCalls(ctx context.Context, after time.Time) (called bool, err error) {
	keys := f.programs.o.AllKeys()
	for limit := time.Now().Add(judge.ResumesWithin); time.Now().Before(limit); {
		if err := f.ledger.read(); err != nil {
			return false, err
		}
		if f.ledger.calledSince(keys, after) {
			return true, nil
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

func (f *fleet) strikeReplica(ctx context.Context, s plan.Strike) (target string, err error) {
	r := f.replicas[s.Target]
	switch s.Kind {
	case plan.KillReplica:
		p := f.takeAway(r)
		now := time.Now()
		p.Kill()
		f.record.killed(judge.Kill{What: "worker", At: now})
		stream.Sleep(ctx, s.Last)
		err = f.startReplica(r)
	case plan.StopReplica:
		pause(ctx, r.process, s.Last)
	case plan.CutNATS:
		cutOff(ctx, s, "", r.nats...)
	case plan.CutRedis:
		cutOff(ctx, s, "", r.redis)
	case plan.CutAPI:
		cutOff(ctx, s, r.name, f.toAPI)
	case plan.RollReplicas:
		return "all", f.roll(ctx)
	default:
		panic("torture: unknown strike " + s.Kind) // a bug in the plan
	}
	return r.name, err
}

// roll restarts one replica after another.
func (f *fleet) roll(ctx context.Context) error {
	for _, r := range f.replicas {
		if err := f.takeAway(r).Stop(stopWithin); err != nil {
			f.record.note("rolling restart: %v", err)
		}
		if err := f.startReplica(r); err != nil {
			return err
		}
		if err := f.awaitReplicas(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) strikeNode(ctx context.Context, s plan.Strike) (target string, err error) {
	n := f.nodes[s.Target]
	switch s.Kind {
	case plan.KillNode:
		now := time.Now()
		n.process.Kill()
		f.record.killed(judge.Kill{What: "server", At: now})
		stream.Sleep(ctx, s.Last)
		return n.name, f.startNode(ctx, n)
	case plan.CutNode:
		links := f.paths(n)
		if s.Apart {
			for _, r := range f.replicas {
				links = append(links, r.nats[s.Target])
			}
		}
		cutOff(ctx, s, "", links...)
		return n.name, nil
	default:
		return "all", f.rollNodes(ctx)
	}
}

func (f *fleet) rollNodes(ctx context.Context) error {
	for _, n := range f.nodes {
		if err := n.process.Stop(stopWithin); err != nil {
			f.record.note("rolling restart: %v", err)
		}
		if err := f.startNode(ctx, n); err != nil {
			return err
		}
		if err := f.awaitCurrent(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) strikeRedis(ctx context.Context, s plan.Strike) error {
	older := f.redisDir() + "-older"
	if s.Kind == plan.SetBackRedis {
		if err := os.CopyFS(older, os.DirFS(f.redisDir())); err != nil {
			return fmt.Errorf("copy what Redis has: %w", err)
		}
		stream.Sleep(ctx, s.Behind)
	}
	f.redis.process.Kill()
	if s.Kind == plan.LoseRedis || s.Kind == plan.SetBackRedis {
		if err := os.RemoveAll(f.redisDir()); err != nil {
			return fmt.Errorf("lose what Redis had: %w", err)
		}
	}
	if s.Kind == plan.SetBackRedis {
		if err := os.Rename(older, f.redisDir()); err != nil {
			return fmt.Errorf("put the older file of Redis back: %w", err)
		}
	}
	stream.Sleep(ctx, s.Last)
	return f.startRedis(ctx)
}

// cutOff cuts links for the duration of a strike.
func cutOff(ctx context.Context, s plan.Strike, name string, links ...*network.Link) {
	for _, l := range links {
		l.Cut(name)
	}
	stream.Sleep(ctx, s.Last)
	for _, l := range links {
		if s.Held == plan.Lost {
			l.Reset(name)
		} else {
			l.Heal(name)
		}
	}
}
