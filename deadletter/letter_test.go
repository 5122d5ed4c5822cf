package deadletter

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
	"weir/ingest"
)

func someLetter() *Letter {
	return &Letter{
		API: "credit", Key: "a b", JobID: "job-1", Origin: "WEIR_pay_3.17", Reason: Rejected, Detail: "422 from the api",
		Header: nats.Header{"X-Own": {"a", "b"}, "Weir-Path": {"/x"}, "Weir-Job-Id": {"job-1"}}, Body: []byte("\x00body\xff"),
		At: time.Date(2026, 1, 2, 15, 4, 5, 6, time.UTC), Attempts: 2, Status: 422, Billed: BilledYes, Redrives: 1, ReplyTo: "mine",
	}
}

func TestLetterMessage(t *testing.T) {
	msg := someLetter().Message()
	want := nats.Header{
		"X-Own": {"a", "b"}, "Weir-Path": {"/x"}, "Weir-Job-Id": {"job-1"}, "Weir-Api": {"credit"}, "Weir-Key": {"a b"},
		"Weir-Dead-Reason": {"rejected"}, "Weir-Dead-Detail": {"422 from the api"}, "Weir-Dead-At": {"2026-01-02T15:04:05.000000006Z"},
		"Weir-Dead-Attempts": {"2"}, "Weir-Dead-Status": {"422"}, "Weir-Dead-Billed": {"yes"}, "Weir-Redrives": {"1"},
		"Nats-Msg-Id": {"letter.WEIR_pay_3.17"},
	}
	if !reflect.DeepEqual(msg.Header, want) {
		t.Errorf("got  %v\nwant %v", msg.Header, want)
	}
	if msg.Subject != "weir.dead.credit.rejected.a%20b" || string(msg.Data) != "\x00body\xff" {
		t.Errorf("%s %q", msg.Subject, msg.Data)
	}
	notice := someLetter().Notice()
	if notice.Subject != "mine" || len(notice.Data) != 0 || notice.Header.Get("Weir-Outcome") != "rejected" || notice.Header.Get("X-Own") != "" {
		t.Errorf("the notice is %+v", notice)
	}
}

// TestLetterOfALetter checks that the headers of a job's new letter replace those of an earlier letter.
func TestLetterOfALetter(t *testing.T) {
	l := someLetter()
	for _, name := range []string{"Weir-Dead-Reason", "weir-dead-billed", "Weir-Redrives", "WEIR-API", "weir-key", "weir-job-id"} {
		l.Header[name] = []string{"old"}
	}
	l.Header["Weir-Job-Nats-Msg-Id"], l.Header["Nats-Msg-Id"] = []string{"old"}, []string{"own"}
	msg := l.Message()
	for name, values := range msg.Header {
		if values[0] == "old" {
			t.Errorf("%s is of the earlier letter", name)
		}
	}
	if got := msg.Header["Weir-Job-Nats-Msg-Id"]; !reflect.DeepEqual(got, []string{"own"}) {
		t.Errorf("the job's own message id is %q", got)
	}
}

// TestLetterFits checks that JetStream stores the letter of any job and obeys none of the job's headers.
func TestLetterFits(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"Nats-Rollup", "nats-ttl", "NATS-Expected-Last-Sequence", "Status", "X Y", "", "Weir-Job-Id", strings.Repeat("long", 9000),
	}))
	rapid.Check(t, func(t *rapid.T) {
		l := someLetter()
		l.Header = rapid.MapOf(text, rapid.SliceOf(text)).Draw(t, "header")
		l.Body = rapid.SampledFrom([][]byte{nil, []byte("body")}).Draw(t, "body")
		l.Detail, l.Key = text.Draw(t, "detail"), rapid.StringN(0, -1, 128).Draw(t, "key")
		before := bytes.Clone(l.Body)
		msg := l.Message()
		size := 0
		for name, values := range msg.Header {
			if name == "" || strings.ContainsAny(name, " :\r\n\x00") || strings.HasPrefix(strings.ToLower(name), "nats-") && name != ingest.HeaderMsgID ||
				len(l.Body) == 0 && strings.EqualFold(name, "Status") {
				t.Fatalf("the letter has a header %q", name)
			}
			for _, v := range values {
				size += len(name) + len(v) + 4
			}
		}
		if size > 65000 {
			t.Fatalf("%d bytes of headers", size)
		}
		if !bytes.Equal(before, msg.Data) || strings.Count(msg.Subject, ".") != 4 {
			t.Fatalf("%s %q", msg.Subject, msg.Data)
		}
		if k := readLetter(msg.Subject, msg.Header); k.Key != l.Key || k.API != l.API || k.Reason != l.Reason || k.JobID != l.JobID {
			t.Fatalf("it reads as %+v", k)
		}
	})
}

func TestLetterIDs(t *testing.T) {
	l := someLetter()
	if again := someLetter(); l.msgID() != again.msgID() {
		t.Error("the same death has two letters")
	}
	redriven := someLetter()
	redriven.Origin = "WEIR_credit_3.29"
	if l.msgID() == redriven.msgID() {
		t.Error("a redriven job that dies again has no letter of its own")
	}
	refused := &Letter{API: "credit", Key: "k", JobID: "job-1", Reason: Overflow}
	if first, second := refused.msgID(), refused.msgID(); first == second {
		t.Error("a job refused twice has one letter")
	}
}

func TestCleanDetail(t *testing.T) {
	if got := cleanDetail("a\r\nb\x00c\x7f"); got != "a  b c " {
		t.Errorf("%q", got)
	}
	if got := cleanDetail(strings.Repeat("é", 300)); len(got) > 512 || !strings.HasPrefix(got, "éé") || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-4:])
	}
}
