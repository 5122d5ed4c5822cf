package ingest

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// someJob draws a job as its producer renders it. Its body and header values may look like parts of a batch.
func someJob(t *rapid.T) *nats.Msg {
	text := rapid.SampledFrom([]string{"", "x", "ü", "0 0 k\r\n", "\r\n", "Nats-Msg-Id: 1\r\n", "1 1\r\n\x00", strings.Repeat("y", 300)})
	m := &nats.Msg{Subject: "weir.jobs.a", Header: nats.Header{}, Data: []byte(text.Draw(t, "body") + text.Draw(t, "more"))}
	if key := rapid.SampledFrom([]string{"", "k", "tenant.42", "%20", "a%0D%0A", "_"}).Draw(t, "key"); key != "" {
		m.Subject += "." + key
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Nats-Msg-Id", "Weir-Path", "a", "Zoë"}), 1, 3, rapid.ID).Draw(t, "names") {
		m.Header[name] = rapid.SliceOfN(rapid.SampledFrom([]string{"", "1", "a: b", "ü", "0 0"}), 1, 3).Draw(t, "values")
	}
	return m
}

// TestBatchesAreExact checks that the intake reads from a batch the jobs that the client has put in, byte for byte, and
// refuses a batch that is shorter or longer, or has another number of jobs.
func TestBatchesAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := rapid.SliceOfN(rapid.Custom(someJob), 1, 8).Draw(t, "jobs")
		b := client.NewBatch("a")
		size := client.BatchEnvelope
		for _, j := range jobs {
			if err := b.Add(j); err != nil {
				t.Fatal(err)
			}
			size += client.SizeInBatch(j)
		}
		msg := b.Message()
		if b.Jobs() != len(jobs) || msg.Header.Get("Weir-Batch") != strconv.Itoa(len(jobs)) || msg.Size() > size {
			t.Fatalf("%d jobs of %d, %d bytes of at most %d", b.Jobs(), len(jobs), msg.Size(), size)
		}
		read, err := readBatch(msg.Data, len(jobs))
		if err != nil {
			t.Fatal(err)
		}
		one, _ := strings.CutPrefix(strings.TrimPrefix(msg.Subject, "weir.jobs.a"), ".")
		for i, j := range jobs {
			key, _ := strings.CutPrefix(strings.TrimPrefix(j.Subject, "weir.jobs.a"), ".")
			if one != "" && one != client.NoToken {
				read[i].key += one // its line has none
			}
			header, err := parseHeader(read[i].header)
			if err != nil || read[i].key != key || !bytes.Equal(read[i].body, j.Data) || !maps.EqualFunc(header, j.Header, slices.Equal) {
				t.Errorf("job %d: %q %v %q %v, it was %+v", i, read[i].key, header, read[i].body, err, j)
			}
		}
		for _, wrong := range []struct {
			data []byte
			n    int
		}{
			{msg.Data[:rapid.IntRange(0, len(msg.Data)-1).Draw(t, "cut")], len(jobs)},
			{append(bytes.Clone(msg.Data), '\n'), len(jobs)},
			{msg.Data, len(jobs) - 1},
			{msg.Data, len(jobs) + 1},
		} {
			if wrong.n > 0 {
				if _, err := readBatch(wrong.data, wrong.n); err == nil {
					t.Errorf("%q passes for a batch of %d jobs", wrong.data, wrong.n)
				}
			}
		}
	})
}

// FuzzReadBatch checks that a batch has one spelling, so that no byte of it is ignored, and that headers are read as
// the NATS client reads them.
func FuzzReadBatch(f *testing.F) {
	f.Add([]byte("14 2 k\r\nNats-Msg-Id:1\r\n{}"), 1)
	f.Add([]byte("5 0\r\na:1\r\n5 1 a.b\r\na:1\r\n\x00"), 2)
	f.Add([]byte("0 0\r\n"), 1)
	f.Add([]byte("00 0\r\n"), 1)
	f.Add([]byte("999999999 999999999 k\r\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 1 || n > MaxBatch {
			return
		}
		jobs, err := readBatch(data, n)
		if err != nil {
			return
		}
		var again []byte
		for _, j := range jobs {
			again = append(strconv.AppendInt(again, int64(len(j.header)), 10), ' ')
			again = strconv.AppendInt(again, int64(len(j.body)), 10)
			if j.key != "" {
				again = append(append(again, ' '), j.key...)
			}
			again = append(append(append(again, "\r\n"...), j.header...), j.body...)
			header, err := parseHeader(j.header)
			if err != nil {
				continue
			}
			want, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + string(j.header) + "\r\n"))
			if err != nil || !reflect.DeepEqual(header, want) {
				t.Errorf("headers %q are read as %q, NATS reads %q: %v", j.header, header, want, err)
			}
		}
		if len(jobs) != n || !bytes.Equal(again, data) {
			t.Errorf("%q is read as %d jobs of %d: %q", data, len(jobs), n, again)
		}
	})
}

// TestWrongBatchesSayWhere checks that the error about a batch names the job and the byte.
func TestWrongBatchesSayWhere(t *testing.T) {
	t.Parallel()
	const good = "16 2 k\r\nNats-Msg-Id: 1\r\n{}"
	for _, c := range []struct {
		text, want string
		n          int
	}{
		{good, "job 2 of 2, at byte 26: the message ends before it", 2},
		{good + good, "26 bytes follow after the last of 1 jobs, at byte 26", 1},
		{good + "16 3 k\r\nNats-Msg-Id: 1\r\n{}", "job 2 of 2, at byte 26: it has 16 bytes of headers and 3 of body by its line, 18 bytes follow", 2},
		{"+1 0\r\n1", "job 1 of 1, at byte 0: it begins with a line", 1},
		{good + "0 2 k\r\n{}", "job 2 of 2, at byte 26: it has no headers, and each job of a batch needs an id (Nats-Msg-Id)", 2},
		{"01 0\r\n1", "it begins with a line", 1},
		{"1\r\n1", "it begins with a line", 1},
		{"1 0 \r\n1", "it begins with a line", 1},
		{"1 0 a b\r\n1", "it begins with a line", 1},
		{"1 0\n1", "it begins with a line", 1},
		{"1234567890 0\r\n1", "it begins with a line", 1},
		{"1 0 " + strings.Repeat("k", 3*MaxKeyBytes+20) + "\r\n1", "it begins with a line", 1},
	} {
		if _, err := readBatch([]byte(c.text), c.n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := readBatch([]byte("1 0 "+strings.Repeat("%20", MaxKeyBytes)+"\r\n:"), 1); err != nil {
		t.Errorf("the longest key: %v", err)
	}
}

// TestWrongHeaderLinesStaySecret checks that the error about a line of headers names its number and the header, and
// quotes nothing else of it.
func TestWrongHeaderLinesStaySecret(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A: 1\r\nAuthorization: Bearer hunter2":         "line 2 (Authorization) is no line",
		"A: 1\r\nB: 2\r\nBearer hunter2\r\nhunter2\r\n": "line 3 is no line",
		"A: 1\nAuthorization: hunter2\r\n":              "line 1 (A) is no line",
		"Bearer hunter2: 1\n\r\n":                       "line 1 is no line",
		": hunter2\r\n":                                 "line 1 is no line",
	} {
		_, err := parseHeader([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestJoinAnswersFits checks that the answer to a batch fits in a message: the producer is told that the answers which
// do not fit are unknown.
func TestJoinAnswersFits(t *testing.T) {
	t.Parallel()
	a := []byte(`{"seq":1}`)
	for most, want := range map[int]string{
		1000: `{"jobs":[{"seq":1},null,{"seq":1},{"seq":1}]}`,
		45:   `{"jobs":[{"seq":1},null,{"seq":1},{"seq":1}]}`,
		44:   `{"jobs":[{"seq":1},null,{"seq":1},null]}`,
		39:   `{"jobs":[{"seq":1},null,null,null]}`,
		10:   `{"jobs":[null,null,null,null]}`,
	} {
		if got := string(client.JoinAnswers([][]byte{a, nil, a, a}, most)); got != want {
			t.Errorf("in %d bytes: %s", most, got)
		}
	}
}
