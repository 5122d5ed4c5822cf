package queue

import (
	"fmt"
	"slices"
	"testing"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// TestSweeper reads and finishes messages in random order, and the stream often does not answer. A purge must take
// nothing unfinished, everything finished must go, and nothing of it may be remembered.
func TestSweeper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newDesk().p
		s := p.sweeper
		waiting, finished, kept := []uint64{}, map[uint64]bool{}, map[uint64]bool{}
		seq := uint64(0)
		sweep := func(answers bool) {
			upTo, covered, single := s.next()
			if len(single) > stream.MaxExchange {
				t.Fatalf("%d deletes at once", len(single))
			}
			for m := range kept {
				if m <= upTo && !finished[m] {
					t.Fatalf("a purge up to %d takes %d, which is not finished", upTo, m)
				}
			}
			for _, m := range single {
				if !finished[m] {
					t.Fatalf("%d is deleted and not finished", m)
				}
			}
			if !answers {
				return
			}
			for m := range kept {
				if m <= upTo || slices.Contains(single, m) {
					delete(kept, m)
				}
			}
			s.gone(covered)
			s.gone(single)
		}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					seq += uint64(rapid.IntRange(1, 2).Draw(t, "gap"))
					e := Entry{Kind: JobEntry, Seq: seq, Key: "k", Header: nats.Header{}}
					if rapid.Bool().Draw(t, "marker") {
						e = Entry{Kind: RetryEntry, Seq: seq}
					}
					if !p.noteRead(e) || p.noteRead(e) {
						t.Fatalf("%d was news twice, or never", seq)
					}
					kept[seq] = true
					waiting = append(waiting, seq)
					if e.Kind != JobEntry {
						finished[seq] = true
						waiting = waiting[:len(waiting)-1]
						p.Discard(seq)
					}
				}
			},
			"finish": func(t *rapid.T) {
				for range min(len(waiting), rapid.IntRange(1, 40).Draw(t, "n")) {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
					finished[waiting[i]] = true
					p.Finish("k", waiting[i])
					waiting = slices.Delete(waiting, i, i+1)
				}
			},
			"sweep":     func(*rapid.T) { sweep(true) },
			"no answer": func(*rapid.T) { sweep(false) },
			"": func(t *rapid.T) {
				if p.Unswept() > len(finished) || len(s.deleted) > 1025+len(s.order) {
					t.Fatalf("%d unswept, %d deleted, %d in order", p.Unswept(), len(s.deleted), len(s.order))
				}
			},
		})
		for _, m := range waiting {
			finished[m] = true
			p.Finish("k", m)
		}
		for p.Unswept() > 0 {
			sweep(true)
		}
		sweep(true) // lets go of what was deleted singly
		if len(kept)+len(s.order)+len(s.deleted)+len(p.book.keys) != 0 {
			t.Fatalf("left: %d messages, %d in order, %d deleted, %d keys", len(kept), len(s.order), len(s.deleted), len(p.book.keys))
		}
	})
}

func TestIsDeleted(t *testing.T) {
	for text, want := range map[string]bool{
		`{"success":true}`: true,
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`:        true,
		`{"error":{"code":500,"err_code":10057,"description":"stream store EOF"}}`:        true,
		`{"error":{"code":500,"err_code":10043,"description":"message 4 not found"}}`:     true,
		`{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}`: false,
		`{}`: false, `not JSON`: false, ``: false,
	} {
		if got := isDeleted(&nats.Msg{Data: []byte(text)}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if isDeleted(nil) {
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
