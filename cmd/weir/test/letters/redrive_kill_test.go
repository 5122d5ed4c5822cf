package letters

import (
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
)

// TestOneRedriveAtOnce: while a redrive is under way a second one waits, and a purge is refused.
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
	r.Must("dead", "redrive", "--yes", "--detach", "--name", "first", "--rate", "1/h")
	r.Eventually("its first letter", func() bool {
		out, _ := r.Command("dead", "ls", "--json")
		return strings.Contains(out, `"redrives":1`) && r.LetterCount() == 4 // the one before it is deleted
	})
	r.Must("dead", "redrive", "--yes", "--detach", "--name", "second")
	if _, code := r.Command("dead", "purge", "--yes"); code != cli.ExitRefused || r.LetterCount() != 4 {
		t.Errorf("a purge: exit code %d, %d letters are left", code, r.LetterCount())
	}
	if second := r.Task("second"); second.State != deadletter.TaskWaiting || second.Done != 0 {
		t.Errorf("a second redrive is %+v", second)
	}
	r.Must("dead", "stop", "second")
	r.Must("dead", "stop", "first")
	if _, code := r.Command("dead", "purge", "--yes"); code != 0 || r.LetterCount() != 0 {
		t.Errorf("a purge behind it: exit code %d, %d letters are left", code, r.LetterCount())
	}
}
