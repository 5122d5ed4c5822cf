package ledger

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// TestResultFor checks that the result of a recorded call is found, with one request if the record names it, however
// many results of its key were stored meanwhile; and that a name which is wrong does not mislead.
func TestResultFor(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	const many, mine = 50, 40
	var at [many]uint64
	for i := range uint64(many) {
		at[i] = b.result("k", fmt.Sprint("job-", i), "Q", i, bucket.MicrosOf(accepted(i)))
	}
	c := done(call("k", mine, 1))
	c.Ended, c.Stored = time.Now().Add(-time.Minute), time.Now()
	for _, named := range []struct {
		result uint64
		most   uint64 // requests
	}{{at[mine], 1}, {at[3], 2 + many}, {at[many-1] + 9, 2 + many}, {0, 2 + many}} {
		c.Result = named.result
		before := b.js.Conn().Stats().OutMsgs
		r, err := ResultFor(t.Context(), b.js, &c)
		if err != nil || r == nil || r.Seq != at[mine] || r.Job != c.Job || string(r.Body) != "done" || r.Size != len("done") {
			t.Errorf("with the name %d: %+v, %v", named.result, r, err)
		}
		if n := b.js.Conn().Stats().OutMsgs - before; n > named.most {
			t.Errorf("with the name %d: %d requests", named.result, n)
		}
	}
	c.Result, c.Seq = at[mine], many+1
	if r, err := ResultFor(t.Context(), b.js, &c); err != nil || r != nil {
		t.Errorf("the result of another job is taken: %+v, %v", r, err)
	}
}

// TestOfJob checks that a record is read only as one of its job.
func TestOfJob(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	at := b.write(call("k", 1, 1))
	b.spoil()
	if c, err := OfJob(t.Context(), b.js, at, "job-1"); err != nil || c == nil || c.At != at || c.Stored.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	for seq := at; seq < at+9; seq++ {
		if c, err := OfJob(t.Context(), b.js, seq, "other"); err != nil || c != nil {
			t.Errorf("at %d: %+v, %v", seq, c, err)
		}
	}
}

// TestReadRequests checks that no result is read that is too old to be given again, however long ago the last reading
// was, and none that was read before.
func TestReadRequests(t *testing.T) {
	t.Parallel()
	b := newBook(t)
	store := func(job string) {
		b.put(&nats.Msg{Subject: ResultSubject("pay", "k"), Header: nats.Header{ingest.HeaderJobID: {job}, HeaderRequest: {job}}})
	}
	for _, job := range []string{"one", "two", "three"} {
		store(job)
	}
	since := time.Now()
	for _, job := range []string{"four", "five"} {
		store(job)
	}
	for _, c := range []struct {
		name  string
		after uint64
		since time.Time
		want  string
	}{
		{"the first reading", 0, since, "[four five]"},
		{"the last reading was long ago", 1, since, "[four five]"},
		{"the last reading was a moment ago", 4, since, "[five]"},
		{"the stream was created anew", 99, since, "[four five]"},
		{"none is new enough", 1, since.Add(time.Hour), "[]"},
	} {
		read := []string{}
		o := Requests{API: "pay", Since: c.since, After: c.after, Most: 100}
		last, err := ReadRequests(t.Context(), b.js, o, func(request string, _ uint64, _ time.Time) { read = append(read, request) })
		if err != nil || last != 5 || fmt.Sprint(read) != c.want {
			t.Errorf("%s: read %v up to %d, want %s: %v", c.name, read, last, c.want, err)
		}
	}
}
