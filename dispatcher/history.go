package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recovery"
)

// found is what markers say of one job, or of another one that once had its sequence.
type found struct {
	intents []foundIntent
	marks   []foundMark
}

type foundIntent struct {
	queue.Intent
	mark   *intentMark
	stored time.Time
}

// overrules reports whether a call may have been made after the mark of an end was decided on: the intent stands behind it, or
// is of a later owner. A mark may arrive late, sent by an owner that had the right to and lost it while its connection stalled;
// whoever took the partition over knew nothing of it.
func (i *foundIntent) overrules(end *foundMark) bool {
	return i.mark.seq > end.seq || i.Epoch > end.Epoch
}

type foundMark struct {
	queue.RetryMark
	seq uint64
}

// jobHistory is what is known of a job that was found in the stream, before anything is looked up. Its zero value is that of a job that was never
// near a call.
type jobHistory struct {
	intent *foundIntent
	mark   *foundMark
	last   *ledger.LastCall
	result *ledger.StoredResult
}

// history takes out what is known of a job, and those markers that say nothing of it: they are outdated, or of another job. A call that ran
// while a server lost its last writes leaves its marker behind the job that has its sequence since.
func (r *replay) history(e queue.Entry) (h jobHistory, outdated found) {
	stored := bucket.MicrosOf(e.Time)
	if f := r.found[e.Seq]; f != nil {
		delete(r.found, e.Seq)
		for i := range f.intents {
			n := &f.intents[i]
			if n.Accepted != stored || h.intent != nil && h.intent.Call > n.Call {
				outdated.intents = append(outdated.intents, *n)
				continue
			}
			if h.intent != nil {
				outdated.intents = append(outdated.intents, *h.intent)
			}
			h.intent = n
		}
		for i := range f.marks {
			n := &f.marks[i]
			if n.Accepted != stored || h.mark != nil && n.Ends == "" && (h.mark.Ends != "" || h.mark.Calls >= n.Calls) {
				outdated.marks = append(outdated.marks, *n)
				continue
			}
			if h.mark != nil {
				outdated.marks = append(outdated.marks, *h.mark)
			}
			h.mark = n
		}
	}
	// A record or a result of another job stands there too where the stream was deleted since, and counts from 1 again.
	if c, ok := r.records[e.Seq]; ok && c.Of(e) {
		h.last = &c
	}
	if s, ok := r.results[e.Seq]; ok && s.Of(e) {
		h.result = &s
	}
	return h, outdated
}

// discardLocked lets go of markers that nobody needs.
func (p *partition) discardLocked(f *found) {
	for _, i := range f.intents {
		if i.mark.users--; i.mark.users == 0 {
			p.bucket.Discard(i.mark.seq)
		}
	}
	for _, m := range f.marks {
		p.bucket.Discard(m.seq)
	}
}

// known is what the history says, but for what was noted of the intended call.
func (h *jobHistory) known() (f recovery.Found) {
	if h.last != nil {
		f.Recorded, f.Ended = h.last.Call, h.last.Final
	}
	if h.mark != nil {
		f.Recorded, f.Ending = max(f.Recorded, h.mark.Calls), h.mark.Ends != ""
	}
	if h.intent != nil {
		f.Intended, f.Overruled = h.intent.Call, h.mark != nil && h.intent.overrules(h.mark)
	}
	f.Result = h.result != nil
	return f
}
