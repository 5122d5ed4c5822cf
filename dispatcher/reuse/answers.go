package reuse

import (
	"container/list"

	"weir/bucket"
)

// answerBytes is how much memory one remembered answer takes, including its places in the map and in the list.
const answerBytes = 224

// Answers remembers the results whose answers may be given again, by the Sum of their request. When its memory is used
// up, it forgets the answers that it learnt first. The caller must lock it.
type Answers struct {
	most int
	by   map[Sum]*list.Element
	all  list.List // of *Answer, in the order in which they were learnt
}

// Answer is a result that may be given again.
type Answer struct {
	Sum  Sum
	Seq  uint64        // of the result in its stream
	Done bucket.Micros // when its result was stored, by the lane's clock
}

// NewAnswers returns Answers that take at most this many bytes of memory.
func NewAnswers(bytes int64) *Answers {
	a := &Answers{by: map[Sum]*list.Element{}}
	a.Bound(bytes)
	return a
}

// Bound changes how many bytes of memory the answers may take.
func (a *Answers) Bound(bytes int64) {
	a.most = int(max(1, bytes/answerBytes))
	a.shed()
}

// Learn remembers an answer, unless a newer answer to the same request is known. It forgets answers that were done
// before oldest.
func (a *Answers) Learn(n Answer, oldest bucket.Micros) {
	if at := a.by[n.Sum]; at != nil {
		if at.Value.(*Answer).Done >= n.Done {
			return
		}
		a.all.Remove(at)
	}
	a.by[n.Sum] = a.all.PushBack(&n)
	for first := a.all.Front(); first != nil && first.Value.(*Answer).Done < oldest; first = a.all.Front() {
		a.forget(first)
	}
	a.shed()
}

// Find returns the answer to a request, unless it was done before oldest.
func (a *Answers) Find(s Sum, oldest bucket.Micros) (Answer, bool) {
	at := a.by[s]
	if at == nil {
		return Answer{}, false
	}
	n := *at.Value.(*Answer)
	if n.Done < oldest {
		a.forget(at)
		return Answer{}, false
	}
	return n, true
}

// Forget forgets an answer whose result is gone. It does not forget another answer to the same request.
func (a *Answers) Forget(n Answer) {
	if at := a.by[n.Sum]; at != nil && at.Value.(*Answer).Seq == n.Seq {
		a.forget(at)
	}
}

// Len returns how many answers are remembered.
func (a *Answers) Len() int { return a.all.Len() }

// Bytes returns about how many bytes the answers take.
func (a *Answers) Bytes() int64 { return int64(a.all.Len()) * answerBytes }

func (a *Answers) shed() {
	for a.all.Len() > a.most {
		a.forget(a.all.Front())
	}
}

func (a *Answers) forget(at *list.Element) {
	delete(a.by, at.Value.(*Answer).Sum)
	a.all.Remove(at)
}
