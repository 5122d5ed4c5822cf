package deadletter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// seqs walks through a scope and returns the letters' numbers.
func seqs(t *testing.T, scope *deadletter.Scope, parts deadletter.Parts) []uint64 {
	t.Helper()
	var all []uint64
	for walk := scope.Walk(parts); ; {
		chunk, err := walk.Chunk(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk) == 0 {
			return all
		}
		for _, k := range chunk {
			if (string(k.Body) == "body") != (parts == deadletter.Whole) {
				t.Fatalf("letter %d has the body %q", k.Seq, k.Body)
			}
			all = append(all, k.Seq)
		}
	}
}

// TestScope checks that a scope has the letters that matched when it was made, for each way of reading it, and that a
// purge deletes exactly these.
func TestScope(t *testing.T) {
	t.Parallel()
	js := openStream(t)
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 0, 3000, 10)
	half := time.Now()
	bury(t, js, 3000, 3000, 10)
	rate := &bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 1}
	for _, c := range []struct {
		what string
		s    deadletter.Selection
		rate *bucket.Rate
	}{
		{"three by number", deadletter.Selection{Seqs: []uint64{9, 7, 8, 9}}, nil},
		{"a job", deadletter.Selection{Filter: deadletter.Filter{API: "most", Job: "job-11"}}, nil},
		{"a status", deadletter.Selection{Filter: deadletter.Filter{API: "most", Status: deadletter.StatusRange{From: 404, To: 404}}}, nil},
		{"since", deadletter.Selection{Filter: deadletter.Filter{Key: "k.3", Since: half}}, nil},
		{"until", deadletter.Selection{Filter: deadletter.Filter{Key: "k.3", Until: half}}, nil},
		{"a reason, slowly", deadletter.Selection{Filter: deadletter.Filter{Reason: deadletter.Overflow, Until: half}}, rate},
		{"all", deadletter.Selection{}, nil},
	} {
		scope, err := b.Scope(t.Context(), c.s)
		if err != nil {
			t.Fatal(err)
		}
		bury(t, js, 6000, 20, 2) // too late for the scope
		before := seqs(t, wholeScope(t, b), deadletter.HeadersOnly)
		meant := seqs(t, scope, deadletter.Whole)
		contents, err := scope.Contents(t.Context())
		if err != nil || contents.Letters != len(meant) || len(meant) == 0 || !slices.IsSorted(meant) {
			t.Fatalf("%s: %d letters of which %+v are counted, %v", c.what, len(meant), contents, err)
		}
		told := 0
		n, err := scope.Purge(t.Context(), deadletter.PurgeOptions{
			Rate: c.rate, Valid: func() bool { return true }, Progress: func(n int) { told = n },
		})
		if err != nil || n != len(meant) || told != n {
			t.Errorf("%s: purged %d of %d, told of %d: %v", c.what, n, len(meant), told, err)
		}
		after := seqs(t, wholeScope(t, b), deadletter.HeadersOnly)
		want := slices.DeleteFunc(before, func(seq uint64) bool { _, found := slices.BinarySearch(meant, seq); return found })
		if !slices.Equal(after, want) {
			t.Errorf("%s: %d letters are left, want %d", c.what, len(after), len(want))
		}
	}
	var missing *deadletter.MissingError
	if _, err := b.Scope(t.Context(), deadletter.Selection{Seqs: []uint64{6001 + 5*20, 7}}); !errors.As(err, &missing) || missing.Seq != 7 {
		t.Errorf("a letter that was purged: %v", err)
	}
}

func wholeScope(t *testing.T, b *deadletter.Browser) *deadletter.Scope {
	t.Helper()
	scope, err := b.Scope(t.Context(), deadletter.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

// TestChunkOfLargeHeadersIsBounded checks that a chunk of letters without bodies has no more bytes of headers than
// allowed.
func TestChunkOfLargeHeadersIsBounded(t *testing.T) {
	t.Parallel()
	js := openStream(t)
	const letters, large = 400, 30 << 10
	for i := range letters {
		l := &deadletter.Letter{
			API: "most", Key: "k", JobID: fmt.Sprint("job-", i), Reason: deadletter.Rejected, At: time.Now(),
			Header: nats.Header{"X-Large": {strings.Repeat("x", large)}},
		}
		if _, err := js.PublishMsgAsync(l.Message(), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the letters to be stored", js.PublishAsyncComplete())
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	walk, read := wholeScope(t, b).Walk(deadletter.HeadersOnly), 0
	for {
		chunk, err := walk.Chunk(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(chunk) == 0 {
			break
		}
		if read += len(chunk); len(chunk)*large > 9<<20 {
			t.Errorf("a chunk holds %d letters of %d bytes", len(chunk), large)
		}
	}
	if read != letters {
		t.Errorf("the chunks have %d letters of %d", read, letters)
	}
}

// TestPurgeWithoutRight checks that a purge without the right deletes nothing.
func TestPurgeWithoutRight(t *testing.T) {
	js := openStream(t)
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	bury(t, js, 0, 10, 2)
	for _, s := range []deadletter.Selection{{}, {Seqs: []uint64{1}}} {
		scope, err := b.Scope(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = scope.Purge(t.Context(), deadletter.PurgeOptions{Valid: func() bool { return false }, Progress: func(int) {}})
		if n := seqs(t, wholeScope(t, b), deadletter.HeadersOnly); !errors.Is(err, deadletter.ErrRightLost) || len(n) != 10 {
			t.Errorf("%v, %d letters are left", err, len(n))
		}
	}
}
