package queue

import (
	"fmt"
	"slices"
	"testing"

	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// putNamed stores a job and returns its sequence.
func (p *Partition) putNamed(t *testing.T, key, job string) uint64 {
	t.Helper()
	msg := &nats.Msg{Subject: queueSubject("pay", 0, kindJob, ingest.Token(key)), Header: nats.Header{ingest.HeaderJobID: {job}}, Data: []byte("body")}
	ack, err := p.queue.js.PublishMsg(t.Context(), msg)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// search returns the keys and sequences of the found jobs, and how many messages came over the partition's connection
// meanwhile.
func (p *Partition) search(t *testing.T, job, key string) (found []string, came uint64) {
	t.Helper()
	before := p.source.nc.Stats().InMsgs
	jobs, err := p.Find(await.Context(t, "a search"), job, key)
	if err != nil {
		t.Fatal(err)
	}
	came = p.source.nc.Stats().InMsgs - before
	for _, e := range jobs {
		if e.Header.Get(ingest.HeaderJobID) != job || e.Time.IsZero() {
			t.Errorf("%s was found as %+v", job, e)
		}
		found = append(found, fmt.Sprint(e.Key, " ", e.Seq))
	}
	return found, came
}

// TestFindReadsNoOtherJob checks that a search for an id reads only a few messages, however many jobs wait. It finds
// the jobs of all keys with the id, but not a job that has ended.
func TestFindReadsNoOtherJob(t *testing.T) {
	t.Parallel()
	const many, most = 2000, 100 // the partition's reader and its watchdog get some messages meanwhile
	p, _, read, _ := ownedPartition(t, 0, removalWatch)
	seqs := map[string]uint64{}
	put := func(key, job string) {
		seqs[key+" "+job] = p.putNamed(t, key, job)
		await.Receive(t, "a job", read)
	}
	put("k", "twice")
	put("other.key", "twice")
	for i := range many {
		put(fmt.Sprint("k", i%7), fmt.Sprint("job-", i))
	}
	put("k", "ended")
	if err := p.source.stream.DeleteMsg(t.Context(), seqs["k ended"]); err != nil {
		t.Fatal(err)
	}
	place := func(key, job string) string { return fmt.Sprint(key, " ", seqs[key+" "+job]) }
	for _, c := range []struct {
		job, key string
		want     []string
	}{
		{"job-700", "", []string{place("k0", "job-700")}},
		{"job-700", "k0", []string{place("k0", "job-700")}},
		{"job-700", "k1", nil},
		{"twice", "", []string{place("k", "twice"), place("other.key", "twice")}},
		{"twice", "other.key", []string{place("other.key", "twice")}},
		{"ended", "", nil},
		{"never", "", nil},
	} {
		if found, came := p.search(t, c.job, c.key); !slices.Equal(found, c.want) || came > most {
			t.Errorf("%s of key %q: found %v, want %v; %d messages were read", c.job, c.key, found, c.want, came)
		}
	}
}

// TestFindBeforeTheReader checks that a search finds jobs that the partition's reader has not delivered.
func TestFindBeforeTheReader(t *testing.T) {
	t.Parallel()
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	if found, _ := p.search(t, "job-1", ""); found != nil {
		t.Errorf("an empty queue has %v", found)
	}
	for i := range 20 {
		p.putNamed(t, "k", fmt.Sprint("job-", i))
	}
	if found, _ := p.search(t, "job-7", ""); !slices.Equal(found, []string{"k 8"}) {
		t.Errorf("found %v", found)
	}
	if found, _ := p.search(t, "job-7", "other"); found != nil {
		t.Errorf("under another key %v", found)
	}
}

// TestFindOfMany checks that a search finds a key's job even if more keys have jobs with the id than a search loads one
// by one.
func TestFindOfMany(t *testing.T) {
	t.Parallel()
	const many = mostNamed + 20
	p, _, read, _ := ownedPartition(t, 0, removalWatch)
	for i := range many {
		p.putNamed(t, fmt.Sprint("k", i), "same")
		await.Receive(t, "a job", read)
	}
	if found, _ := p.search(t, "same", fmt.Sprint("k", many-1)); len(found) != 1 {
		t.Errorf("of the last key %v", found)
	}
	if found, _ := p.search(t, "same", ""); len(found) != many {
		t.Errorf("%d jobs were found, not %d", len(found), many)
	}
}

// TestFindBesideAReplicaThatLags checks that a search finds what the stream's leader has, read or not, although a
// replica that lags answers.
func TestFindBesideAReplicaThatLags(t *testing.T) {
	t.Parallel()
	p, _, read, _ := ownedPartition(t, 0, removalWatch)
	unread := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	for _, q := range []*Partition{p, unread} {
		q.putNamed(t, "k", "job-1")
		natstest.LagReads(t, q.queue.js, q.Name())
		if q == p {
			await.Receive(t, "a job", read)
		}
		if found, _ := q.search(t, "job-1", ""); len(found) != 1 {
			t.Errorf("found %v", found)
		}
	}
}

// TestFindBehindDeleted checks a stream whose last messages were deleted before the reader could get them. The search
// must know that the reader has read all messages.
func TestFindBehindDeleted(t *testing.T) {
	t.Parallel()
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	if err := p.source.stream.DeleteMsg(t.Context(), p.putNamed(t, "k", "job-1")); err != nil {
		t.Fatal(err)
	}
	if last, needed, err := p.awaitEnd(t.Context()); last != 1 || needed != 0 || err != nil {
		t.Errorf("the stream ends at %d, the reader must come to %d: %v", last, needed, err)
	}
}
