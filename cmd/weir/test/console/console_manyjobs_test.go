package console

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestConsoleManyJobs: behind many ended jobs the page of jobs shows the newest ones and reads no more than one page of them, and leads to the
// story of the oldest. The number of jobs is WEIR_TEST_JOBS. The test logs how long each step took in the browser.
func TestConsoleManyJobs(t *testing.T) {
	t.Parallel()
	jobs := 20_000
	if asked := os.Getenv("WEIR_TEST_JOBS"); asked != "" {
		var err error
		if jobs, err = strconv.Atoi(asked); err != nil {
			t.Fatal(err)
		}
	}
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}}, `
apis:
  pay: {url: %s, bucket: {rate: 200/s, capacity: 100}}
`)
	js := r.Operators()
	began := time.Now().UTC().Add(-time.Hour)
	for n := range jobs {
		at := began.Add(time.Duration(n) * time.Millisecond)
		c := ledger.Record{
			API: "pay", Key: fmt.Sprint("key-", n%1000), Job: jobName(n), Dedupe: jobName(n), Stream: "WEIR_pay_0", Seq: uint64(n + 1), Call: 1, Attempt: 1,
			Accepted: at, Planned: at, Started: at, Ended: at, Sent: true, Status: 200, Outcome: ledger.Done, Final: true, Price: "0", Billed: deadletter.BilledYes,
			Instance: "test",
		}
		if _, err := js.PublishMsgAsync(c.Message(), jetstream.WithStallWait(weirtest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the records to be stored", js.PublishAsyncComplete())
	t.Logf("%d jobs", jobs)
	b := newBrowser(t, r.Worker.HTTPAddr())
	b.open("/")
	step := func(what string, act func(), until string) {
		t.Helper()
		start := eval[float64](b, `performance.now()`)
		act()
		b.wait(what, until)
		t.Logf("%s after %.0f ms", what, eval[float64](b, `performance.now()`)-start)
	}
	row := func(n int) string {
		return fmt.Sprintf(`document.querySelector("tbody tr[data-job]")?.dataset.job === %q`, jobName(n))
	}
	for range 3 {
		step("the newest jobs", func() { b.visit("/jobs") }, row(jobs-1))
		if rows := eval[int](b, `document.querySelectorAll("tbody tr[data-job]").length`); rows != 50 {
			t.Errorf("%d rows", rows)
		}
		step("the second page", func() { b.click("nav[aria-label='Pages of jobs'] button:last-child") }, row(jobs-51))
		step("one key", func() { b.visit("/jobs?api=pay&key=key-7") }, row(jobs-993))
		step("the oldest job", func() { b.visit("/jobs?id=" + jobName(0)) }, row(0))
		step("its story", func() { b.visit("/job?id=" + jobName(0)) }, `document.querySelector("[data-state=done]") !== null`)
		b.visit("/")
	}
}

func jobName(n int) string { return fmt.Sprintf("0199c0de-0000-7000-8000-%012x", n) }
