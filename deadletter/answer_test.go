package deadletter

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// TestAnswerProperty stores any answer beside any headers of a job. It checks that the same answer is read, or its
// beginning, marked as cut, and that JetStream's maximum of headers is never exceeded.
func TestAnswerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := someLetter()
		for n := range rapid.IntRange(0, 3).Draw(t, "headers") {
			l.Header["X-Big-"+strings.Repeat("n", n)] = []string{strings.Repeat("v", rapid.IntRange(0, 25<<10).Draw(t, "size"))}
		}
		l.Header["weir-answer-cut"], l.Header["Weir-Answer"] = []string{"old"}, []string{"old"}
		size := rapid.IntRange(0, 40<<10).Draw(t, "answer")
		some := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "body")
		body := bytes.Repeat(some, size/len(some)+1)[:size]
		l.Answer = &Answer{
			Status: rapid.IntRange(100, 999).Draw(t, "status"), ContentType: rapid.String().Draw(t, "type"), Body: body, Cut: rapid.Bool().Draw(t, "cut"),
		}
		msg := l.Message()
		stored := 0
		for name, values := range msg.Header {
			for _, v := range values {
				stored += len(name) + len(v) + len(": \r\n")
			}
			if name == "weir-answer-cut" {
				t.Fatal("what the job had of an earlier letter stays")
			}
		}
		if stored > 64<<10-256 {
			t.Fatalf("%d bytes of headers", stored)
		}
		got := readLetter(msg.Subject, msg.Header).Answer
		if got == nil || got.Status != l.Answer.Status || !bytes.HasPrefix(body, got.Body) || len(got.Body) > MaxAnswer {
			t.Fatalf("read as %+v", got)
		}
		if cut := l.Answer.Cut || len(got.Body) < len(body); got.Cut != cut {
			t.Fatalf("%d of %d bytes are kept, cut: %v", len(got.Body), len(body), got.Cut)
		}
		if strings.ContainsAny(got.ContentType, "\r\n\x00") || len(got.ContentType) > maxAnswerContentType {
			t.Fatalf("the content type is %q", got.ContentType)
		}
		for name := range (&Kept{Letter: *l}).resubmission(Terms{}, KeepDeadline, diedAt).Header {
			if OfAnswer(name) {
				t.Fatalf("a redrive takes %s along", name)
			}
		}
	})
}

// FuzzReadAnswer passes any headers to readAnswer, because any client may have published the letter.
func FuzzReadAnswer(f *testing.F) {
	f.Add("422", "aGVsbG8=", "")
	f.Add("", "", "")
	f.Add("-1", "====", "true")
	f.Fuzz(func(t *testing.T, status, body, cut string) {
		a := readAnswer(nats.Header{HeaderAnswerStatus: {status}, HeaderAnswer: {body}, HeaderAnswerCut: {cut}})
		if a != nil && (a.Status < 1 || a.Status > 999) {
			t.Errorf("read as %+v", a)
		}
	})
}
