package letters

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestOneRedriveAtOnce: a second redrive, or a purge, is refused while one is under way.
func TestOneRedriveAtOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	for i := range 4 {
		r.Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.AwaitCalls(i + 1)
	}
	r.Eventually("empty buckets", func() bool { return r.Waiting("pay") == 0 })
	for i := range 4 {
		r.Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
	}
	first := r.Redriving("--rate", "1/h")
	r.Eventually("its first letter", func() bool {
		out, _ := r.Command("dead", "ls", "--json")
		return strings.Contains(out, `"redrives":1`) && r.LetterCount() == 4 // the one before it is deleted
	})
	if did, code := r.Redrive(); code != cli.ExitRefused || did.Redriven+did.Overflowed != 0 {
		t.Errorf("a second redrive: exit code %d, %+v", code, did)
	}
	if _, code := r.Command("dead", "purge", "--yes"); code != cli.ExitRefused || r.LetterCount() != 4 {
		t.Errorf("a purge: exit code %d, %d letters are left", code, r.LetterCount())
	}
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := weirtest.ExitCode(await.Result(t, "the end of an interrupted redrive", first.Wait)); code != cli.ExitFailed {
		t.Errorf("a redrive that was interrupted ends with exit code %d", code)
	}
	if _, code := r.Command("dead", "purge", "--yes"); code != 0 || r.LetterCount() != 0 {
		t.Errorf("a purge behind it: exit code %d, %d letters are left", code, r.LetterCount())
	}
}
