package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/deadletter"
)

// The faults of the store, if the server is inside weir.
const (
	putBack   kind = "backup put back"
	flipBytes kind = "eight bytes of a queue flipped"
)

// setBack is the restore of a backup. Everything accepted between from and to is lost, and weir must say so.
type setBack struct{ from, to time.Time }

// damage is one damaged message of a queue. weir was stopped meanwhile.
type damage struct {
	stream string
	at     time.Time
}

// endRestored kills weir and copies its store. It lets another weir continue for a while, kills that weir too, and
// restores the copy. The next start must refuse the store. The start after that has the flag --restored.
func (s *lives) endRestored(ctx context.Context, p *process, l life, name string) error {
	if p.Gone(ctx, l.delay) {
		s.weir.endedByItself(p, nil)
		return nil
	}
	s.weir.kill(p, "")
	from, backup := time.Now(), filepath.Join(s.servers.o.Dir, "backup")
	if err := os.CopyFS(backup, os.DirFS(s.servers.dir())); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	next, err := s.weir.start(name+"-lost", life{})
	if err == nil {
		err = next.awaitReady(ctx, startWithin)
	}
	if err != nil {
		return err
	}
	s.api.awaitCall(ctx, next)
	stream.Sleep(ctx, l.delay)
	s.weir.kill(next, "")
	if err := errors.Join(os.RemoveAll(s.servers.dir()), os.Rename(backup, s.servers.dir())); err != nil {
		return fmt.Errorf("put the copy of the store back: %w", err)
	}
	refused, err := s.weir.start(name+"-refused", life{})
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
	told, err := s.weir.start(name+"-restored", life{}, "--restored")
	if err == nil {
		err = told.awaitReady(ctx, startWithin)
	}
	if err != nil {
		return err
	}
	s.record.wasSetBack(setBack{from, time.Now()})
	s.record.count(putBack)
	return nil
}

// endFlipped ends weir, by a signal or a kill, and flips eight bytes of a job in a block of a queue.
func (s *lives) endFlipped(ctx context.Context, p *process, l life) error {
	if p.Gone(ctx, l.delay) {
		s.weir.endedByItself(p, nil)
		return nil
	}
	if l.flip.orderly {
		if err := p.Stop(stopWithin); err != nil {
			s.record.note("an orderly stop: %v", err)
		}
		s.weir.forget(p)
	} else {
		s.weir.kill(p, fault.Point(""))
	}
	spoilt, err := flipIn(s.servers.dir(), rand.New(rand.NewPCG(s.servers.o.Seed, l.flip.seed)))
	if err != nil {
		return fmt.Errorf("flip bytes: %w", err)
	}
	if spoilt == "" {
		s.record.note("no byte was flipped: no job was in a block of a queue")
		return nil
	}
	s.record.damaged(damage{spoilt, time.Now()})
	s.record.count(flipBytes)
	return nil
}

// lastJobs bounds how far back in a block the damaged job may be. Most jobs further back have ended.
const lastJobs = 12

// flipIn flips eight bytes of one of the last jobs in one of the blocks. It returns the name of the stream, or "" if no
// block has a job.
func flipIn(dir string, r *rand.Rand) (spoilt string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "WEIR_"+apiName+"_*", "msgs", "*.blk"))
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

// gone reports whether a job was answered between a backup and its restore, so that weir knows nothing of it.
func (e *Evidence) gone(p *Receipt) bool {
	for _, b := range e.SetBacks {
		if p.At.After(b.from) && p.At.Before(b.to) {
			return true
		}
	}
	return false
}

// spoilt reports whether a job's queue was damaged. The job may stand behind the damaged message in a block, whenever
// it was accepted. At the next kill the server discards the part of the block behind the damage, and uses its sequences
// again for other jobs.
func (e *Evidence) spoilt(p *Receipt) bool {
	for _, d := range e.Damages {
		if d.stream == p.Stream {
			return true
		}
	}
	return false
}

// nameLost sets the job ids in the letters of lost jobs, because weir does not know the producers' ids.
func (e *Evidence) nameLost() {
	ids := map[place]string{}
	for i := range e.Receipts {
		if p := &e.Receipts[i]; p.Code == 0 && !e.gone(p) {
			ids[place{p.Stream, p.Seq}] = p.ID
		}
	}
	for i := range e.Ends.Letters {
		if l := &e.Ends.Letters[i]; l.Job == "" && l.At != (place{}) {
			l.Job = ids[l.At]
		}
	}
}

// untold returns how many jobs a damage took without a report of weir. weir reports in a letter, which may not name the
// job, or by a line in the log about jobs that it cannot name.
func (e *Evidence) untold(lost map[string]int) (untold int) {
	told := map[string]int{}
	for _, l := range e.Ends.Letters {
		if l.Job == "" && l.Reason == string(deadletter.Unknown) && strings.HasPrefix(l.Detail, "lost: ") {
			told[e.streamIn(l.Detail)]++
		}
	}
	for name, n := range lost {
		if !e.Heard.unnamed[name] {
			untold += max(0, n-told[name])
		}
	}
	return untold
}

var queueNamed = regexp.MustCompile(`WEIR_` + apiName + `_\d+`)

func (e *Evidence) streamIn(detail string) string { return queueNamed.FindString(detail) }

// explains reports whether a letter itself says why the outcome of its job is unknown.
func (e *Evidence) explains(l *Letter) bool {
	return strings.HasPrefix(l.Detail, "restored: ") && len(e.SetBacks) > 0 || strings.HasPrefix(l.Detail, "lost: ") && len(e.Damages) > 0
}

// again returns why a job was rightly called twice, or "". There are two reasons. The store lost the job before the
// producer had an answer, and the producer submitted the job again. Or a damaged block lost marks of calls, and weir
// said so.
func (e *Evidence) again(calls []fakeapi.Arrival, p *Receipt) string {
	if p == nil {
		return ""
	}
	first, last := e.at(&calls[0]), e.at(&calls[len(calls)-1])
	for _, b := range e.SetBacks {
		if first.After(b.from) && first.Before(b.to) && p.At.After(b.to) && p.At.Add(-p.Waited).Before(b.to) {
			return "handed in again after the store that knew it was lost"
		}
	}
	for _, d := range e.Damages {
		if d.stream == p.Stream && e.Heard.unnamed[d.stream] && first.Before(last) && d.at.Before(last) {
			return "its marks were lost with a damaged block"
		}
	}
	return ""
}
