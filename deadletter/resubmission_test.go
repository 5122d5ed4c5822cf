package deadletter

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket"
	"weir/ingest"
)

var diedAt = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// readBack returns a letter as the stream stores it.
func readBack(l *Letter) *Kept {
	msg := l.Message()
	k := readLetter(msg.Subject, msg.Header)
	k.Body, k.Size, k.Stored = msg.Data, len(msg.Data), diedAt
	return &k
}

// TestResubmission checks that a redrive publishes everything that the job brought and, of the headers that the letter
// added, only those of the bill.
func TestResubmission(t *testing.T) {
	k := readBack(&Letter{
		API: "credit", Key: "a b", JobID: "job-1", Origin: "WEIR_credit_3.17", Reason: Rejected, Detail: "422", Body: []byte("a\x00"), At: diedAt,
		Accepted: diedAt.Add(-time.Minute), Attempts: 2, Status: 422, Billed: BilledYes, Redrives: 1, ReplyTo: "mine",
		Header: nats.Header{
			"Nats-Msg-Id": {"sent-1"}, "Nats-TTL": {"1h"}, "Weir-Job-Id": {"job-1"}, "Weir-Deadline": {"2m"}, "Weir-Not-Before": {"90s"}, "Weir-Reply-To": {"mine"},
			"X-Own": {"1", "2"}, "Weir-Header-X-Source": {"a", "b"}, "weir-path": {"/p"}, "Weir-Redrives": {"1"}, "Weir-Dead-Reason": {"forged"},
		},
	})
	k.Seq = 17
	want := nats.Header{
		"Nats-Msg-Id": {"job-1.r2"}, "Weir-Job-Id": {"job-1"}, "Weir-Redrives": {"2"}, "Weir-Job-Nats-TTL": {"1h"}, "Weir-Reply-To": {"mine"},
		"X-Own": {"1", "2"}, "Weir-Header-X-Source": {"a", "b"}, "weir-path": {"/p"}, "Weir-Dead-Billed": {"yes"}, "Weir-Dead-From": {"17"},
		"Weir-Deadline": {"2026-01-02T15:05:05Z"}, "Weir-Not-Before": {"2026-01-02T15:04:35Z"}, // durations count from when the job came in
	}
	msg := k.resubmission(Terms{}, KeepDeadline, diedAt)
	if msg.Subject != "weir.operator.redrive.credit.a%20b" || !reflect.DeepEqual(msg.Header, want) || string(msg.Data) != "a\x00" {
		t.Errorf("%s %v %q\nwant %v", msg.Subject, msg.Header, msg.Data, want)
	}
	delete(want, "Weir-Deadline")
	if msg := k.resubmission(Terms{Key: ingest.KeySource{Header: "X-Own"}}, DropDeadline, diedAt); msg.Subject != "weir.operator.redrive.credit" || !reflect.DeepEqual(msg.Header, want) {
		t.Errorf("%s %v\nwant %v", msg.Subject, msg.Header, want)
	}
	rule := &ingest.Rule{API: "credit", Methods: []string{"POST"}, ForwardHeaders: []string{"X-Source"}, MaxBody: 10, ReplyTo: ingest.ReplySubjects{Open: []string{"mine"}}}
	j, refusal := ingest.Parse(ingest.Message{Key: "a b", Header: msg.Header, Body: msg.Data, Redrive: true}, rule, diedAt)
	if refusal != nil || j.ID != "job-1" || j.Redrives != 2 || j.Path != "/p" || j.ReplyTo != "mine" {
		t.Fatalf("the intake reads %+v, %v", j, refusal)
	}
	again := readBack(&Letter{API: "credit", Key: "a b", JobID: j.ID, Reason: Overflow, Header: j.Header, Redrives: j.Redrives, Billed: NotBilled})
	if again.Billed != BilledYes || again.Redrives != 2 || again.firstLetter() != 17 {
		t.Errorf("the next letter has forgotten the bill: %+v", again)
	}
	if id := again.resubmission(Terms{}, KeepDeadline, diedAt).Header.Get("Nats-Msg-Id"); id != "job-1.r3" {
		t.Errorf("a job that was redriven before goes as %q", id)
	}
	refused := Letter{API: "credit", Key: "k", JobID: "job-1", Reason: Overflow, Header: nats.Header{"Nats-Msg-Id": {"sent-1"}}}
	if id := readBack(&refused).resubmission(Terms{}, KeepDeadline, diedAt).Header.Get("Nats-Msg-Id"); id != "sent-1" {
		t.Errorf("a job that was never taken goes as %q, not as it came", id)
	}
	for billed, want := range map[Billed]string{BilledYes: "yes", BilledUnknown: "unknown", NotBilled: ""} {
		l := readBack(&Letter{API: "credit", JobID: "job-1", Origin: "WEIR_credit_3.17", Reason: Unknown, Header: nats.Header{}, Billed: billed})
		if got := l.resubmission(Terms{}, KeepDeadline, diedAt).Header.Get("Weir-Dead-Billed"); got != want {
			t.Errorf("of a letter that says %q of the bill goes along %q", billed, got)
		}
	}
	forged := readBack(&Letter{API: "credit", JobID: "x", Reason: Overflow, Header: nats.Header{"Weir-Dead-Billed": {"yes"}}, Billed: NotBilled})
	if forged.Billed != NotBilled {
		t.Error("a job that was never redriven says it was billed, and is believed")
	}
}

// TestHeadersInAnyCase checks that a letter reads the job's own headers as the intake does, whatever the case of their
// names.
func TestHeadersInAnyCase(t *testing.T) {
	t.Parallel()
	refused := readBack(&Letter{
		API: "credit", Key: "k", JobID: "job-1", Reason: Overflow,
		Header: nats.Header{"nats-msg-id": {"sent-1"}, "weir-job-id": {"job-1"}, "weir-reply-to": {"mine"}},
	})
	if id := refused.resubmission(Terms{}, KeepDeadline, diedAt).Header.Get("Nats-Msg-Id"); id != "sent-1" {
		t.Errorf("a job that was never taken goes as %q, not as it came", id)
	}
	if refused.ReplyTo != "mine" {
		t.Errorf("the reply subject is %q", refused.ReplyTo)
	}
	one := Letter{Header: nats.Header{"Weir-Path": {"/a"}, "Weir-Header-X-Source": {"1", "2"}, "Content-Type": {"text/csv"}, "Weir-Header-traceparent": {"1"}}}
	for _, c := range []struct {
		what   string
		header nats.Header
		same   bool
	}{
		{"other cases", nats.Header{"weir-path": {"/a"}, "weir-header-x-source": {"1", "2"}, "Weir-Header-Content-Type": {"text/csv"}, "X-Own": {"1"}}, true},
		{"another path", nats.Header{"weir-path": {"/b"}, "Weir-Header-X-Source": {"1", "2"}, "Content-Type": {"text/csv"}}, false},
		{"another forwarded header", nats.Header{"Weir-Path": {"/a"}, "Weir-Header-X-Source": {"1", "3"}, "Content-Type": {"text/csv"}}, false},
		{"another content type", nats.Header{"Weir-Path": {"/a"}, "Weir-Header-X-Source": {"1", "2"}, "content-type": {"text/xml"}}, false},
	} {
		if got := one.sameRequest(&Letter{Header: c.header}); got != c.same {
			t.Errorf("%s: the same request: %v", c.what, got)
		}
	}
}

// TestExclude checks which letters a redrive skips, and which option includes them.
func TestExclude(t *testing.T) {
	now := diedAt.Add(time.Hour)
	for _, c := range []struct {
		what       string
		letter     Letter
		idempotent bool
		want       Skip
		included   Skip // with every option
	}{
		{"overflow", Letter{Reason: Overflow}, false, "", ""},
		{"rejected and billed", Letter{Reason: Rejected, Billed: BilledYes}, false, "", ""},
		{"billed, refused by a full bucket since", Letter{Reason: Overflow, Billed: BilledYes}, false, SkipUnknown, ""},
		{"unknown", Letter{Reason: Unknown, Billed: BilledUnknown}, false, SkipUnknown, ""},
		{"unknown, though nobody says so of the bill", Letter{Reason: Unknown, Billed: BilledYes}, false, SkipUnknown, ""},
		{"unknown before the api became idempotent", Letter{Reason: Unknown, Billed: BilledUnknown}, true, SkipUnknown, ""},
		{"exhausted on an idempotent api", Letter{Reason: Exhausted, Billed: BilledUnknown}, true, "", ""},
		{"exhausted before the api was no longer idempotent", Letter{Reason: Exhausted, Billed: BilledUnknown}, false, SkipUnknown, ""},
		{"exhausted under the api's present key", Letter{Reason: Exhausted, Billed: BilledUnknown, Keyed: "Key@a"}, true, "", ""},
		{"exhausted under another key", Letter{Reason: Exhausted, Billed: BilledUnknown, Keyed: "Key@b"}, true, SkipUnknown, ""},
		{"exhausted, however long ago", Letter{Reason: Exhausted, Billed: BilledUnknown, Keyed: KeyedSince("Key@a", now.AddDate(-1, 0, 0))}, true, "", ""},
		{"repeated by consent, and refused by a full bucket", Letter{Reason: Overflow, Billed: BilledUnknown, Redrives: 1}, true, SkipUnknown, ""},
		{"the same, called under the api's present key", Letter{Reason: Overflow, Billed: BilledUnknown, Redrives: 1, Keyed: "Key@a"}, true, "", ""},
		{"too large", Letter{Reason: Invalid, BodyLeftOut: true}, false, SkipNoBody, SkipNoBody},
		{"cancelled", Letter{Reason: Cancelled}, false, SkipCancelled, ""},
		{"a deadline that has passed", Letter{Reason: Expired, Header: nats.Header{"Weir-Deadline": {"30s"}}}, false, SkipDeadline, ""},
		{"a deadline to come", Letter{Reason: Rejected, Header: nats.Header{"weir-deadline": {"2h"}}}, false, "", ""},
		{"of no api", Letter{Reason: Invalid, API: ingest.NoToken}, false, SkipNoAPI, SkipNoAPI},
	} {
		if c.letter.API == "" {
			c.letter.API = "credit"
		}
		c.letter.Key, c.letter.JobID, c.letter.At, c.letter.Accepted = "k", "job", diedAt, diedAt
		if c.letter.API == ingest.NoToken {
			c.letter.API = ""
		}
		r := &Redrive{agreed: map[string]*Terms{}, opts: RedriveOptions{Terms: func(api string) (Terms, bool) {
			return Terms{Idempotent: c.idempotent, Keyed: "Key@a"}, api == "credit"
		}}}
		if _, got := r.exclude(readBack(&c.letter), now); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		r.opts.Unknown, r.opts.Cancelled, r.opts.Deadline = IncludeUnknowns, IncludeCancelleds, DropDeadline
		if _, got := r.exclude(readBack(&c.letter), now); got != c.included {
			t.Errorf("%s, with every word said: %q, want %q", c.what, got, c.included)
		}
	}
}

// TestForgottenKeys checks that a redrive repeats a call under its key only while the api certainly knows the key, by
// the present configuration, and that the job then carries the key's identity, so that it is judged again before its
// call. If the operator includes it, a job with a forgotten key goes without the identity, because it would be parked
// again otherwise.
func TestForgottenKeys(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		what    string
		letter  Letter
		knows   time.Duration
		skipped Skip
		carries bool // its key, if it is redriven
	}{
		{"known", Letter{Reason: Exhausted, Keyed: KeyedSince("Key@a", diedAt.Add(-day+2*time.Minute))}, day, "", true},
		{"forgotten before the call arrives", Letter{Reason: Exhausted, Keyed: KeyedSince("Key@a", diedAt.Add(-day+KeyMargin))}, day, SkipUnknown, false},
		{"forgotten", Letter{Reason: Exhausted, Keyed: KeyedSince("Key@a", diedAt.Add(-day))}, day, SkipUnknown, false},
		{"forgotten, by a time that was corrected", Letter{Reason: Exhausted, Keyed: KeyedSince("Key@a", diedAt.Add(-time.Hour))}, time.Hour, SkipUnknown, false},
		{"never forgotten", Letter{Reason: Exhausted, Keyed: KeyedSince("Key@a", diedAt.Add(-1000*day))}, 0, "", true},
		{"of an unknown time", Letter{Reason: Exhausted, Keyed: "Key@a"}, day, SkipUnknown, false},
		{"of an unknown key", Letter{Reason: Exhausted}, day, SkipUnknown, false},
		{"of an unknown key that is never forgotten", Letter{Reason: Exhausted}, 0, "", false},
		{"unknown", Letter{Reason: Unknown, Keyed: KeyedSince("Key@a", diedAt)}, day, SkipUnknown, true},
		{"redriven under a key that is forgotten since", Letter{
			Reason: Exhausted, Redrives: 1, Keyed: KeyedSince("Key@a", diedAt.Add(-time.Hour)), Header: nats.Header{HeaderKeyed: {KeyedSince("Key@a", diedAt.Add(-day))}},
		}, day, SkipUnknown, false},
	} {
		c.letter.API, c.letter.Key, c.letter.JobID, c.letter.At, c.letter.Accepted, c.letter.Billed = "credit", "k", "job", diedAt, diedAt, BilledUnknown
		terms := Terms{Idempotent: true, Keyed: "Key@a", KnowsKeys: c.knows}
		r := &Redrive{agreed: map[string]*Terms{}, opts: RedriveOptions{Terms: func(string) (Terms, bool) { return terms, true }}}
		k := readBack(&c.letter)
		_, skipped := r.exclude(k, diedAt)
		carries := k.resubmission(terms, KeepDeadline, diedAt).Header.Get(HeaderKeyed) != ""
		if skipped != c.skipped || carries != c.carries {
			t.Errorf("%s: left alone %q, carries its key %v", c.what, skipped, carries)
		}
		r.opts.Unknown = IncludeUnknowns
		if _, skipped = r.exclude(k, diedAt); skipped != "" {
			t.Errorf("%s: left alone as %q in spite of consent", c.what, skipped)
		}
	}
}

// TestDrain checks that the forecast time of a load is that of its slowest limit, after the jobs that wait already.
func TestDrain(t *testing.T) {
	rate := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}
	account := bucket.Rate{Count: 20, Per: time.Second, Burst: 1}
	for _, c := range []struct {
		what    string
		shared  []bucket.Limit
		waiting map[string]uint64
		want    time.Duration
		slowest string
	}{
		{"two buckets side by side", nil, nil, 10 * time.Second, "the bucket of credit/a"},
		{"behind others", nil, map[string]uint64{"b": 200}, 25 * time.Second, "the bucket of credit/b"},
		{"a shared rate", []bucket.Limit{{Name: "account", Rate: &account, Cost: ingest.FromHeader("Weir-Cost")}}, nil, 15 * time.Second, "limit account of credit"},
		{"a quota", []bucket.Limit{{Name: "daily", Quota: &bucket.Quota{Count: 50, Window: bucket.Calendar, Unit: bucket.Day}}}, nil, 48 * time.Hour, "limit daily of credit"},
		{"a budget", []bucket.Limit{{Name: "spend", Budget: &bucket.Budget{Quota: bucket.Quota{Count: 75_000_000, Window: bucket.Sliding, Per: time.Hour}}}}, nil, time.Hour, "limit spend of credit"},
	} {
		terms := &Terms{Price: 1_000_000, Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: rate, Capacity: 60}, Shared: c.shared}}
		l := &load{}
		for i := range 100 {
			l.add(&Kept{Letter: Letter{Key: "a", Header: nats.Header{"Weir-Cost": {"2"}}}}, &terms.Rules, i)
		}
		for i := range 50 {
			l.add(&Kept{Letter: Letter{Key: "b", Header: nats.Header{"Weir-Cost": {"2"}}}}, &terms.Rules, 100+i)
		}
		got, slowest := l.drain("credit", terms, c.waiting)
		if got.Round(time.Second) < c.want-time.Second || got.Round(time.Second) > c.want+time.Second || slowest != c.slowest {
			t.Errorf("%s: %s for %s, want %s for %s", c.what, got, slowest, c.want, c.slowest)
		}
		if n := l.overflow(terms, map[string]uint64{"b": 30}); n != 40+20 {
			t.Errorf("%d find no room, want 60", n)
		}
	}
}

// TestPriorityOfARedrive checks that a redriven job has the priority of the redrive, however its producer spelled the
// header's name.
func TestPriorityOfARedrive(t *testing.T) {
	for p, want := range map[ingest.Priority][]string{ingest.Low: {"low"}, ingest.High: {"high"}, ingest.Normal: nil} {
		h := nats.Header{"weir-priority": {"high"}, "X-Own": {"1"}}
		setPriority(h, p)
		if got := ingest.HeaderValues(h, ingest.HeaderPriority); !slices.Equal(got, want) || len(h.Values("X-Own")) != 1 {
			t.Errorf("%s: %v", p, h)
		}
	}
	order := TaskOrder{}
	if o := order.options(RedriveOptions{}); *o.Priority != ingest.Low {
		t.Errorf("a task that says none gives priority %s", *o.Priority)
	}
	order.Priority = "normal"
	if o := order.options(RedriveOptions{}); *o.Priority != ingest.Normal {
		t.Errorf("a task that says normal gives priority %s", *o.Priority)
	}
}
