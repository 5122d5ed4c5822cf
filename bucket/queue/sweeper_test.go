package queue

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// TestSweeper reads and finishes messages in random order, with a stream that often does not answer. It checks that a
// purge deletes no unfinished message, that every finished message is deleted, and that the sweeper keeps nothing of
// it. If a job and its marker are finished, the marker must not be deleted first.
func TestSweeper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newDesk().p
		m := &p.contents.messages
		waiting, finished, kept := []uint64{}, map[uint64]bool{}, map[uint64]bool{}
		markers := map[uint64][]uint64{} // of jobs that are not finished
		jobOf := map[uint64]uint64{}
		finish := func(job uint64) {
			finished[job] = true
			p.Finish("k", job)
			for _, m := range markers[job] {
				finished[m] = true
				p.Discard(m)
			}
		}
		seq := uint64(0)
		sweep := func(answers bool) {
			upTo, covered, single := p.contents.sweepable()
			if len(single.jobs) > stream.MaxExchange || len(single.markers) > stream.MaxExchange {
				t.Fatalf("%d and %d deletes at once", len(single.jobs), len(single.markers))
			}
			for _, m := range single.markers {
				if job := jobOf[m]; finished[job] && kept[job] && job > upTo && !slices.Contains(single.jobs, job) {
					t.Fatalf("marker %d is deleted before its job %d", m, job)
				}
			}
			for m := range kept {
				if m <= upTo && !finished[m] {
					t.Fatalf("a purge up to %d takes %d, which is not finished", upTo, m)
				}
			}
			all := append(slices.Clone(single.jobs), single.markers...)
			for _, m := range all {
				if !finished[m] {
					t.Fatalf("%d is deleted and not finished", m)
				}
			}
			if !answers {
				return
			}
			for m := range kept {
				if m <= upTo || slices.Contains(all, m) {
					delete(kept, m)
				}
			}
			p.contents.gone(covered)
			p.contents.gone(all)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					seq += uint64(rapid.IntRange(1, 2).Draw(t, "gap"))
					e := Entry{Kind: JobEntry, Seq: seq, Key: "k", Header: nats.Header{ingest.HeaderJobID: {fmt.Sprint(seq)}}}
					if rapid.Bool().Draw(t, "marker") {
						e = Entry{Kind: RetryEntry, Seq: seq}
					}
					if !p.contents.read(e) || p.contents.read(e) {
						t.Fatalf("%d was news twice, or never", seq)
					}
					kept[seq] = true
					waiting = append(waiting, seq)
					if e.Kind == JobEntry {
						continue
					}
					waiting = waiting[:len(waiting)-1]
					if len(waiting) > 0 && rapid.Bool().Draw(t, "of a job") {
						job := waiting[rapid.IntRange(0, len(waiting)-1).Draw(t, "its job")]
						markers[job], jobOf[seq] = append(markers[job], seq), job
						continue
					}
					finished[seq] = true
					p.Discard(seq)
				}
			},
			"finish": func(t *rapid.T) {
				for range min(len(waiting), rapid.IntRange(1, 40).Draw(t, "n")) {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
					finish(waiting[i])
					waiting = slices.Delete(waiting, i, i+1)
				}
			},
			"sweep":     func(*rapid.T) { sweep(true) },
			"no answer": func(*rapid.T) { sweep(false) },
			"": func(t *rapid.T) {
				for _, job := range waiting {
					if named, _ := p.contents.named(fmt.Sprint(job)); !slices.Contains(named, job) {
						t.Fatalf("job %d is not found by its id", job)
					}
				}
				if p.Unswept() > len(finished) || len(m.deleted) > 1025+len(m.order) {
					t.Fatalf("%d unswept, %d deleted, %d in order", p.Unswept(), len(m.deleted), len(m.order))
				}
			},
		})
		for _, m := range waiting {
			finish(m)
		}
		for p.Unswept() > 0 {
			sweep(true)
		}
		sweep(true) // lets go of what was deleted singly
		if len(kept)+len(m.order)+len(m.deleted)+len(p.contents.book.keys) != 0 {
			t.Fatalf("left: %d messages, %d in order, %d deleted, %d keys", len(kept), len(m.order), len(m.deleted), len(p.contents.book.keys))
		}
	})
}

// TestMarkersGoAfterTheirJobs checks that the sweeper does not ask a stream that does not delete jobs to delete
// markers. So if the process dies then, no finished job looks as if it had never been called.
func TestMarkersGoAfterTheirJobs(t *testing.T) {
	js := natstest.JetStream(t)
	p := newDesk().p
	p.source.name, p.source.nc = "LATER", js.Conn()
	s, err := newSweeper(&p.source, p.contents, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.x.Close(); err != nil {
			t.Error(err)
		}
	})
	p.sweeper = s
	requests, err := p.source.nc.SubscribeSync("$JS.API.STREAM.MSG.DELETE.LATER")
	if err != nil {
		t.Fatal(err)
	}
	flush := func() { // then the subscription has all requests that the server has received
		if err := p.source.nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	p.Finish("k", 7)
	p.Discard(8)
	const job, marker = `{"seq":7,"no_erase":true}`, `{"seq":8,"no_erase":true}`
	for _, c := range []struct {
		what  string
		all   bool
		asked []string
	}{{"no stream answers", false, []string{job}}, {"the stream answers", true, []string{job, marker}}} {
		upTo, covered, single := s.contents.sweepable()
		all := s.sweep(t.Context(), upTo, covered, single)
		flush()
		var asked []string
		for n, _, err := requests.Pending(); n > 0 && err == nil; n, _, err = requests.Pending() {
			m, err := requests.NextMsg(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			asked = append(asked, string(m.Data))
		}
		if all != c.all || !slices.Equal(asked, c.asked) {
			t.Errorf("%s: asked to delete %q, want %q; all deleted: %v", c.what, asked, c.asked, all)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LATER", Subjects: []string{"later"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoMarkerGoesWhileJobsAreLeft checks that no marker is deleted before the last job, even if there are more jobs
// than one exchange deletes.
func TestNoMarkerGoesWhileJobsAreLeft(t *testing.T) {
	const jobs = stream.MaxExchange + 10
	p := newDesk().p
	for seq := range uint64(jobs) {
		p.Finish("k", seq+1)
		p.Discard(seq + 1 + jobs)
	}
	for _, want := range [][2]int{{stream.MaxExchange, 0}, {10, stream.MaxExchange}, {0, 10}} {
		_, _, single := p.contents.sweepable()
		if len(single.jobs) != want[0] || len(single.markers) != want[1] {
			t.Errorf("%d jobs and %d markers go, want %v", len(single.jobs), len(single.markers), want)
		}
		p.contents.gone(single.jobs)
		p.contents.gone(single.markers)
	}
}

// TestRefusedDeletionIsNotDone checks that finished messages stay unswept while their stream refuses to delete them, that
// the sweeper logs this once and not at each try, and that a message that is gone already counts as deleted.
func TestRefusedDeletionIsNotDone(t *testing.T) {
	js := natstest.JetStream(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept"}, DenyDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FREE", Subjects: []string{"free"}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.Publish(t.Context(), "free", nil); err != nil {
			t.Fatal(err)
		}
	}
	for stream, refuses := range map[string]bool{"KEPT": true, "FREE": false} {
		var said bytes.Buffer
		p := newDesk().p
		p.source.name, p.source.nc = stream, js.Conn()
		s, err := newSweeper(&p.source, p.contents, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		p.sweeper = s
		p.Finish("k", 2)
		for range 3 { // the second and third time the message is gone
			all := s.sweep(t.Context(), 0, nil, singles{jobs: []uint64{2}})
			if all == refuses {
				t.Errorf("%s: all deleted: %v", stream, all)
			}
			if refuses && p.Unswept() != 1 {
				t.Errorf("%s: %d unswept messages", stream, p.Unswept())
			}
		}
		if got := strings.Count(said.String(), "refuses to delete"); got != map[bool]int{true: 1, false: 0}[refuses] {
			t.Errorf("%s: logged %d times: %s", stream, got, &said)
		}
		if err := s.x.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadDeletion(t *testing.T) {
	for text, want := range map[string]bool{
		`{"success":true}`: true,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`:             true,
		`{"error":{"code":500,"err_code":10057,"description":"stream store EOF"}}`:             true,
		`{"error":{"code":500,"err_code":10057,"description":"no message found"}}`:             true,
		`{"error":{"code":400,"err_code":10043,"description":"sequence 4 not found"}}`:         true,
		`{"error":{"code":500,"err_code":10057,"description":"message delete not permitted"}}`: false,
		`{"error":{"code":500,"err_code":10057,"description":"no space left on device"}}`:      false,
		`{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}`:      false,
		`{}`: false, `not JSON`: false, ``: false,
	} {
		if err := readDeletion(&nats.Msg{Data: []byte(text)}); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	if readDeletion(nil) == nil {
		t.Error("no answer was taken for done")
	}
}

func TestParseQueueSubject(t *testing.T) {
	for subject, want := range map[string]string{
		queueSubject("credit", 3, kindJob, "a%2Eb"): "j a%2Eb true", queueSubject("credit", 3, kindIntent, "x"): "i x true",
		ownerSubject("credit", 3): "  false", "weir.q.credit.3": "  false", "weir.q.credit.3.j": "  false",
	} {
		kind, token, ok := parseQueueSubject(subject)
		if got := fmt.Sprint(kind, " ", token, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", subject, got, want)
		}
	}
}
