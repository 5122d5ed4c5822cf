package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/weirtest"
)

// storyOf asks for a job's story.
func storyOf(r *weirtest.Rig, id, query string) (t jobstory.Timeline) {
	r.T.Helper()
	status, body := r.HTTP().Say("GET", "/api/v1/jobs/"+id+"?"+query, "", "")
	if err := json.Unmarshal([]byte(body), &t); err != nil || status != http.StatusOK {
		r.T.Fatalf("job %s: %d %s", id, status, body)
	}
	return t
}

// steps are the kinds of a story's steps with their numbers.
func steps(t *jobstory.Timeline) (all []string) {
	for _, j := range t.Jobs {
		for i := range j.Steps {
			all = append(all, fmt.Sprintf("%s/%s %s %s %d", j.API, j.Key, j.Steps[i].What, j.Steps[i].Stream, j.Steps[i].Seq))
		}
	}
	slices.Sort(all)
	return all
}

// TestStoryByTheIndexIsWhole: the story of a job that the index of ended jobs leads to has every step that a search of all streams finds,
// and reads no message of other jobs. A lost record makes the search come back.
func TestStoryByTheIndexIsWhole(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(_ context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		switch {
		case q.Key == "bad":
			return fakeapi.Behaviour{Status: http.StatusUnprocessableEntity}
		case q.Key == "again" && q.KeyCall == 1:
			return fakeapi.Behaviour{Status: http.StatusTooManyRequests, RetryAfter: "0"}
		}
		return fakeapi.Behaviour{}
	}}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 3}, keys: {full: {rate: 1/h, capacity: 1}}}
`)
	submit := func(key, id string) {
		r.Producer().Submit("weir.jobs.pay."+key, []byte("a body"), map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + key})
	}
	for _, job := range [][2]string{{"good", "done"}, {"again", "pushed-back"}, {"bad", "rejected"}, {"good", "twice"}, {"other", "twice"}, {"full", "first"}, {"full", "waits"}, {"full", "refused"}} {
		submit(job[0], job[1])
	}
	r.Eventually("the ends", func() bool { return len(jobsOf(r, "state=done").Jobs) == 5 && len(jobsOf(r, "state=dead").Jobs) >= 2 })
	if status, said := r.HTTP().Say("POST", fmt.Sprintf("/api/v1/dead/%d/reveal", jobsOf(r, "status=422").Jobs[0].Letter), "", "{}"); status != http.StatusOK {
		t.Fatalf("reveal: %d %s", status, said)
	}
	want := map[string]int{"done": 1, "pushed-back": 2, "rejected": 1, "twice": 2, "refused": 0}
	searched := map[string][]string{}
	for id, calls := range want {
		r.Eventually(id+"'s whole story", func() bool {
			story := storyOf(r, id, "")
			if looked := story.Looked; len(looked) != 2 || !looked[0].All || !looked[1].All {
				t.Errorf("%s: the index did not lead to it: %+v", id, looked)
			}
			got := steps(&story)
			searched[id] = stepsOfSearch(r, id)
			return slices.Equal(got, searched[id]) && strings.Count(strings.Join(got, "\n"), " call WEIR_CALLS") == calls
		})
	}
	if all := strings.Join(searched["rejected"], "\n"); strings.Count(all, "event") != 2 || !strings.Contains(all, "letter") {
		t.Errorf("the story of the revealed letter has\n%s", all)
	}
	if text := r.CLI().Must("job", "done"); !strings.Contains(text, "\nresult, ") || !strings.Contains(text, `"status":200}`) || strings.Contains(text, "looked through") {
		t.Errorf("weir job says\n%s", text)
	}
	if story := storyOf(r, "done", ""); story.Jobs[0].Result == nil || story.Jobs[0].Result.Size == 0 || story.Jobs[0].Result.Text != nil {
		t.Errorf("over HTTP a story has no body of a result, and here it has %+v", story.Jobs[0].Result)
	}
	if text := r.CLI().Must("results", "get", "done"); !strings.Contains(text, `"status":200}`) {
		t.Errorf("weir results get says %s", text)
	}
	calls, err := r.Operators().Stream(t.Context(), "WEIR_CALLS")
	if err != nil {
		t.Fatal(err)
	}
	if err := calls.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Start()
	r.Eventually("the index to have found the loss", func() bool { return jobsOf(r, "").Missing == 1 })
	if story := storyOf(r, "rejected", ""); len(story.Looked) < 3 {
		t.Errorf("with a lost record the index is believed: %+v", story.Looked)
	}
}

// stepsOfSearch are the steps that a search of all streams finds.
func stepsOfSearch(r *weirtest.Rig, id string) []string {
	r.T.Helper()
	var story jobstory.Timeline
	if err := json.Unmarshal([]byte(r.CLI().Must("job", id, "--scan", "0", "--json")), &story); err != nil {
		r.T.Fatal(err)
	}
	return steps(&story)
}
