package reuse

import (
	"testing"

	"weir/bucket"
)

func sum(n int) Sum { return Sum{byte(n), byte(n >> 8)} }

func TestAnswersAge(t *testing.T) {
	t.Parallel()
	a := NewAnswers(1 << 20)
	a.Learn(Answer{Sum: sum(1), Seq: 7, Done: 100}, 0)
	if n, ok := a.Find(sum(1), 100); !ok || n.Seq != 7 {
		t.Errorf("as old as it may be: %+v, %v", n, ok)
	}
	if n, ok := a.Find(sum(2), 0); ok {
		t.Errorf("another request is answered by %+v", n)
	}
	if n, ok := a.Find(sum(1), 101); ok || a.Len() != 0 {
		t.Errorf("too old: %+v, %v, and %d are kept", n, ok, a.Len())
	}
	a.Learn(Answer{Sum: sum(1), Seq: 8, Done: 200}, 0)
	a.Learn(Answer{Sum: sum(1), Seq: 5, Done: 150}, 0) // an older result that is read late
	if n, _ := a.Find(sum(1), 0); n.Seq != 8 {
		t.Errorf("the newest answer is given: %+v", n)
	}
	a.Learn(Answer{Sum: sum(1), Seq: 9, Done: 300}, 0)
	a.Forget(Answer{Sum: sum(1), Seq: 8})
	if n, ok := a.Find(sum(1), 0); !ok || n.Seq != 9 {
		t.Errorf("the answer that was learnt since was forgotten: %+v", n)
	}
	if a.Forget(Answer{Sum: sum(1), Seq: 9}); a.Len() != 0 {
		t.Error("an answer that is gone is kept")
	}
	a.Learn(Answer{Sum: sum(1), Seq: 1, Done: 10}, 0)
	if a.Learn(Answer{Sum: sum(2), Seq: 2, Done: 20}, 15); a.Len() != 1 {
		t.Errorf("%d answers are kept, one of them is too old", a.Len())
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const most = 10
	a := NewAnswers(most * answerBytes)
	for i := range 1000 {
		a.Learn(Answer{Sum: sum(i), Seq: uint64(i), Done: bucket.Micros(i)}, 0)
		if a.Len() > most || a.Bytes() > most*answerBytes || len(a.by) != a.Len() {
			t.Fatalf("%d answers in %d bytes, %d by their sums", a.Len(), a.Bytes(), len(a.by))
		}
	}
	for i := range 1000 {
		if _, ok := a.Find(sum(i), 0); ok != (i >= 1000-most) {
			t.Errorf("answer %d is kept: %v", i, ok)
		}
	}
	if a.Bound(2 * answerBytes); a.Len() != 2 {
		t.Errorf("%d answers are kept within a bound of 2", a.Len())
	}
	if a.Bound(0); a.Len() != 1 {
		t.Errorf("%d answers are kept, one always is", a.Len())
	}
}
