package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// endRestored kills weir and copies its store. It lets another weir continue for a while, kills that weir too, and
// restores the copy. The next start must refuse the store. The start after that has the flag --restored.
func (s *lives) endRestored(ctx context.Context, p *process, l plan.Life, name string) error {
	if p.Gone(ctx, l.Delay) {
		s.weir.endedByItself(p, nil)
		return nil
	}
	s.weir.kill(p, "")
	from, backup := time.Now(), filepath.Join(s.servers.o.Dir, "backup")
	if err := os.CopyFS(backup, os.DirFS(s.servers.dir())); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	next, err := s.weir.start(name+"-lost", plan.Life{})
	if err == nil {
		err = next.awaitReady(ctx, startWithin)
	}
	if err != nil {
		return err
	}
	s.api.awaitCall(ctx, next)
	stream.Sleep(ctx, l.Delay)
	s.weir.kill(next, "")
	if err := errors.Join(os.RemoveAll(s.servers.dir()), os.Rename(backup, s.servers.dir())); err != nil {
		return fmt.Errorf("put the copy of the store back: %w", err)
	}
	refused, err := s.weir.start(name+"-refused", plan.Life{})
	if err != nil {
		return err
	}
	if err := refused.awaitReady(ctx, startWithin); err == nil {
		s.record.passedOver()
		s.weir.kill(refused, "")
	} else if !errors.Is(err, errGone) || !strings.Contains(refused.Tail(), "--restored") {
		return err
	}
	s.weir.forget(refused)
	told, err := s.weir.start(name+"-restored", plan.Life{}, "--restored")
	if err == nil {
		err = told.awaitReady(ctx, startWithin)
	}
	if err != nil {
		return err
	}
	s.record.wasSetBack(judge.SetBack{From: from, To: time.Now()})
	s.record.count(plan.PutBack)
	return nil
}

// endFlipped ends weir, by a signal or a kill, and flips eight bytes of a job in a block of a queue.
func (s *lives) endFlipped(ctx context.Context, p *process, l plan.Life) error {
	if p.Gone(ctx, l.Delay) {
		s.weir.endedByItself(p, nil)
		return nil
	}
	if l.Flip.Orderly {
		if err := p.Stop(stopWithin); err != nil {
			s.record.note("an orderly stop: %v", err)
		}
		s.weir.forget(p)
	} else {
		s.weir.kill(p, fault.Point(""))
	}
	spoilt, err := flipIn(s.servers.dir(), rand.New(rand.NewPCG(s.servers.o.Seed, l.Flip.Seed)))
	if err != nil {
		return fmt.Errorf("flip bytes: %w", err)
	}
	if spoilt == "" {
		s.record.note("no byte was flipped: no job was in a block of a queue")
		return nil
	}
	s.record.damaged(judge.Damage{Stream: spoilt, At: time.Now()})
	s.record.count(plan.FlipBytes)
	return nil
}

// lastJobs bounds how far back in a block the damaged job may be. Most jobs further back have ended.
const lastJobs = 12

// flipIn flips eight bytes of one of the last jobs in one of the blocks. It returns the name of the stream, or "" if no
// block has a job.
func flipIn(dir string, r *rand.Rand) (spoilt string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "WEIR_"+plan.APIName+"_*", "msgs", "*.blk"))
	if err != nil {
		return "", err
	}
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		body := []byte(`{"id":"`)
		var found []int
		for at := bytes.Index(data, body); at >= 0; {
			found = append(found, at)
			next := bytes.Index(data[at+1:], body)
			if next < 0 {
				break
			}
			at += 1 + next
		}
		if len(found) == 0 {
			continue
		}
		at := found[len(found)-1-r.IntN(min(lastJobs, len(found)))]
		for i := range 8 {
			data[at+i] ^= 0xff
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return "", err
		}
		return filepath.Base(filepath.Dir(filepath.Dir(file))), nil
	}
	return "", nil
}
