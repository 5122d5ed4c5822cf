package intake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"

	"github.com/nats-io/nats.go"
)

const fullConfig = `
apis:
  full: {url: %s, bucket: {rate: 1/h, capacity: 1}}
`

// TestRefusedAgainIsOneLetter: producers that retry at once leave one letter for each job, which counts the refusals.
// Events come at the first refusal, and each time the count has grown tenfold. After a purge of the letter, or for
// another job under the same id, there is a new letter.
func TestRefusedAgainIsOneLetter(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, fullConfig)
	r.CLI().Run("pause", "full", "k")
	r.Producer().Submit("weir.jobs.full.k", nil, nil)
	ids := []string{"a", "b", "c", "d"}
	told := r.Producer().RefusedAgain(110, ids...)
	letters := r.Store().Letters("full", "k")
	if len(letters) != len(ids) {
		t.Fatalf("%d letters of %d jobs that were refused 110 times each", len(letters), len(ids))
	}
	for _, letter := range letters {
		if n := letter.Header.Get("Weir-Dead-Refusals"); len(n) < 2 || string(letter.Data) != "body of "+letter.Header.Get("Weir-Job-Id") {
			t.Errorf("a letter counts %q refusals: %v %q", n, letter.Header, letter.Data)
		}
		if letter.Sequence > slices.Max(told) {
			t.Errorf("no producer was told letter %d", letter.Sequence)
		}
	}
	for id, counts := range r.Store().ThrottledEvents() {
		if len(counts) < 2 || len(counts) > 3 || counts[0] != 0 || counts[len(counts)-1] < 100 {
			t.Errorf("the events of job %s count %v refusals: there is one at the first, and when they are ten times as many", id, counts)
		}
	}
	if out, code := r.CLI().Run("dead", "show", fmt.Sprint(letters[0].Sequence), "--json"); code != 0 || !jsonHas(t, out, "refusals") {
		t.Errorf("dead show tells nothing of the refusals: %s", out)
	}

	if _, code := r.CLI().Run("dead", "purge", "--yes"); code != 0 {
		t.Fatal("the letters could not be purged")
	}
	if again := r.Producer().RefusedAgain(5, "a"); len(r.Store().Letters("full", "k")) != 1 || r.Store().Letters("full", "k")[0].Sequence != again[4] {
		t.Errorf("refused again after its letter was purged a job has %d letters", len(r.Store().Letters("full", "k")))
	}
	other := r.Producer().Submit("weir.jobs.full.k", []byte("another job"), map[string]string{"Nats-Msg-Id": "a"})
	if other.Error == nil || len(r.Store().Letters("full", "k")) != 2 {
		t.Errorf("another job under the same id was answered %+v, and there are %d letters", other, len(r.Store().Letters("full", "k")))
	}
	for range 3 {
		r.Producer().Submit("weir.jobs.full.k", []byte("without an id"), nil)
	}
	if n := len(r.Store().Letters("full", "k")); n != 5 {
		t.Errorf("%d letters: jobs without an id of their own are one each", n)
	}
}

// TestRefusedAgainAfterARestart: another process answers with the letter that it finds, sends no second event, and counts on; and it
// deletes what the one before it had written anew and not yet deleted.
func TestRefusedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, fullConfig)
	r.CLI().Run("pause", "full", "k")
	r.Producer().Submit("weir.jobs.full.k", nil, nil)
	before := r.Producer().RefusedAgain(9, "a")
	// the process dies between the letter that counts ten and the deletion of the one before it
	half := r.Store().Letters("full", "k")[0]
	msg, id := &nats.Msg{Subject: half.Subject, Header: nats.Header{}, Data: half.Data}, half.Header.Get("Nats-Msg-Id")
	for name, values := range half.Header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = values
		}
	}
	msg.Header.Set("Nats-Msg-Id", id[:len(id)-1]+"1")
	msg.Header.Set("Weir-Dead-Refusals", "10")
	msg.Header.Set("Weir-Dead-Replaces", fmt.Sprint(before[0]))
	if _, err := r.Operators().PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Start()
	r.Eventually("one letter", func() bool { return len(r.Store().Letters("full", "k")) == 1 })
	kept := r.Store().Letters("full", "k")[0]
	if kept.Header.Get("Weir-Dead-Refusals") != "10" {
		t.Errorf("the letter that is left counts %q", kept.Header.Get("Weir-Dead-Refusals"))
	}
	if told := r.Producer().RefusedAgain(1, "a"); told[0] != kept.Sequence {
		t.Errorf("told of letter %d, where %d stands", told[0], kept.Sequence)
	}
	r.Producer().RefusedAgain(90, "a")
	letters := r.Store().Letters("full", "k")
	if len(letters) != 1 || letters[0].Header.Get("Weir-Dead-Refusals") < "100" {
		t.Errorf("%d letters; the first counts %q", len(letters), letters[0].Header.Get("Weir-Dead-Refusals"))
	}
}

func jsonHas(t *testing.T, text, field string) bool {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	_, ok := fields[field]
	return ok
}
