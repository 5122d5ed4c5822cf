package letters

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/deadletter"
	"weir/ingest"
)

// TestOneRedriveAtOnce: while a redrive is under way a second one waits, and a purge is refused.
func TestOneRedriveAtOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, `
apis:
  pay: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`)
	for i := range 4 {
		r.Producer().Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.AwaitCalls(i + 1)
	}
	r.Eventually("empty buckets", func() bool { return r.Store().Waiting("pay") == 0 })
	for i := range 4 {
		r.Producer().Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
		r.Producer().Submit(fmt.Sprintf("weir.jobs.pay.k%d", i), nil, nil)
	}
	r.CLI().Must("dead", "redrive", "--yes", "--detach", "--name", "first", "--rate", "1/h")
	r.Eventually("its first letter", func() bool {
		out, _ := r.CLI().Run("dead", "ls", "--json")
		return strings.Contains(out, `"redrives":1`) && r.Store().LetterCount() == 4 // the one before it is deleted
	})
	r.CLI().Must("dead", "redrive", "--yes", "--detach", "--name", "second")
	if _, code := r.CLI().Run("dead", "purge", "--yes"); code != cli.ExitRefused || r.Store().LetterCount() != 4 {
		t.Errorf("a purge: exit code %d, %d letters are left", code, r.Store().LetterCount())
	}
	if second := r.CLI().Task("second"); second.State != deadletter.TaskWaiting || second.Done != 0 {
		t.Errorf("a second redrive is %+v", second)
	}
	r.CLI().Must("dead", "stop", "second")
	r.CLI().Must("dead", "stop", "first")
	if _, code := r.CLI().Run("dead", "purge", "--yes"); code != 0 || r.Store().LetterCount() != 0 {
		t.Errorf("a purge behind it: exit code %d, %d letters are left", code, r.Store().LetterCount())
	}
}

// resubmission is what a redrive publishes for a letter: a test publishes it in its place, and so is a redrive that was
// killed before it deleted the letter.
func resubmission(r *weirtest.Rig, key, job string, n int) map[string]string {
	h := map[string]string{"Nats-Msg-Id": ingest.RedriveID(job, n), "Weir-Job-Id": job, "Weir-Redrives": strconv.Itoa(n)}
	for _, letter := range r.Store().Letters("pay", key) {
		if letter.Header.Get("Weir-Job-Id") == job {
			h["Weir-Dead-From"] = cmp.Or(letter.Header.Get("Weir-Dead-From"), strconv.FormatUint(letter.Sequence, 10))
			break
		}
	}
	return h
}
