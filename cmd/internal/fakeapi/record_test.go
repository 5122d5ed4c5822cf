package fakeapi

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzRecord checks that the record of any request is one line, and reads back as what memory holds.
func FuzzRecord(f *testing.F) {
	f.Add("/a/b", "x=1", "key", "value", []byte("body"), int64(1))
	f.Add("/\"\\", "\n\r\t", "ü \u2028<&>", "\x00\x7f", []byte{0xff, 0}, int64(-1))
	f.Add("/%ff", "\xff\xfe", "\xff", "a\xc3", []byte(nil), int64(1<<62))
	f.Fuzz(func(t *testing.T, path, query, key, value string, body []byte, number int64) {
		want := Arrival{
			Number: number, At: number, Method: "POST", Path: legible(path), Query: legible(query), Key: legible(key), Cost: 1,
			Fields: []Field{{"User-Agent", legible(value)}, {"X-Key", legible(key)}},
		}
		s := settlement{
			end: number, ending: Answered, status: 200, billed: true, charge: number, seen: true,
			bodySize: int64(len(body)), bodyHash: "00ff", body: body,
		}
		line := appendArrival(nil, &want)
		got := read(t, line).arrival()
		rec := read(t, appendAnswer(line[:0], number, s))
		rec.settle(&got)
		want.End, want.Ending, want.Status, want.Billed, want.Charge, want.Seen = number, Answered, 200, true, number, true
		want.BodySize, want.BodyHash = s.bodySize, s.bodyHash
		if len(body) > 0 {
			want.Body = body
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read back %+v\nwritten   %+v", got, want)
		}
		if rec := read(t, appendEnd(nil, number, 3)); rec.Event != "end" || rec.Number != number || rec.End != 3 {
			t.Errorf("read back %+v", rec)
		}
	})
}

// read reads one record, which must be one line.
func read(t *testing.T, line []byte) *record {
	t.Helper()
	for i, c := range line {
		if (c == '\n') != (i == len(line)-1) {
			t.Fatalf("not one line: %q", line)
		}
	}
	var rec record
	if err := json.Unmarshal(line, &rec); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return &rec
}

// FuzzParseBehaviour checks that any order is either refused or can be carried out, and means the same in a step.
func FuzzParseBehaviour(f *testing.F) {
	for _, text := range []string{
		"", "status=503; retry-after=Fri, 31 Dec 2027 23:59:59 GMT", "reset=answer;size=10", "header=X-A: b;header=:", ";;=;", "text=a=b",
		"informational=103; delay=1h; drip=1ms; drip-size=3; location=/x; bill=never; hang; close; echo", "each; status=202",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBehaviour(text)
		if err != nil {
			return
		}
		if s := b.status(); s < 200 || s > 999 || b.Delay < 0 || b.Delay > MaxDelay || b.Size < 0 || b.Size > MaxAnswer {
			t.Errorf("%q: %+v", text, b)
		}
	})
}
