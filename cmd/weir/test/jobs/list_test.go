package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/ops/joblist"
	"weir/cmd/weir/weirtest"
)

// jobsOf asks /api/v1/jobs.
func jobsOf(r *weirtest.Rig, query string) (page joblist.Page) {
	r.T.Helper()
	status, body := r.HTTP().Say("GET", "/api/v1/jobs?"+query, "", "")
	if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
		r.T.Fatalf("jobs?%s: %d %s", query, status, body)
	}
	return page
}

func named(jobs []joblist.Job) (ids []string) {
	for i := range jobs {
		ids = append(ids, jobs[i].Job)
	}
	return ids
}

// TestJobsAreListed: a job is listed in the state in which it is: waiting, being called, done, dead. The command and the API list the same.
func TestJobsAreListed(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := weirtest.NewRig(t, fakeapi.Options{Key: fakeapi.KeyFrom{Segment: -1}, Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
		_ = q.Body()
		switch q.Key {
		case "slow":
			select {
			case <-release:
			case <-ctx.Done():
			}
		case "bad":
			return fakeapi.Behaviour{Status: http.StatusUnprocessableEntity}
		}
		return fakeapi.Behaviour{}
	}}, `
apis:
  pay: {url: %s, bucket: {rate: 100/s, capacity: 3, in_flight: 1}}
  sms: {url: %[1]s, bucket: {rate: 100/s, capacity: 50}}
`)
	submit := func(api, key, id string) {
		r.Producer().Submit("weir.jobs."+api+"."+key, nil, map[string]string{"Nats-Msg-Id": id, "Weir-Path": "/" + key})
	}
	submit("pay", "good", "order-1")
	submit("sms", "bad", "text-1")
	for i := range 4 { // one is called, two wait, one overflows
		submit("pay", "slow", fmt.Sprint("slow-", i))
		if i == 0 {
			r.Eventually("the slow call", func() bool { return len(jobsOf(r, "state=calling").Jobs) == 1 })
		}
	}
	r.Eventually("the ends", func() bool { return len(jobsOf(r, "state=done").Jobs) == 1 && len(jobsOf(r, "state=dead").Jobs) == 2 })
	for query, want := range map[string][]string{
		"state=waiting": {"slow-2", "slow-1"}, "state=calling": {"slow-0"}, "state=done": {"order-1"}, "status=422": {"text-1"}, "status=5xx": nil,
		"api=pay&key=slow&state=waiting": {"slow-2", "slow-1"}, "id=low-1": {"slow-1"}, "api=sms": {"text-1"}, "until=1h": nil,
	} {
		page := jobsOf(r, query)
		if got := named(page.Jobs); !slices.Equal(got, want) || page.Next != "" || !page.Since.IsZero() || len(page.Silent) > 0 {
			t.Errorf("%s: %v, want %v: %+v", query, got, want, page)
		}
	}
	dead := jobsOf(r, "state=dead&api=pay").Jobs
	if len(dead) != 1 || dead[0].Job != "slow-3" || dead[0].Reason != "overflow" || dead[0].Letter == 0 {
		t.Errorf("the dead job is %+v", dead)
	}
	var all []string
	for query := "limit=2"; ; {
		page := jobsOf(r, query)
		all = append(all, named(page.Jobs)...)
		if page.Next == "" {
			break
		}
		query = "limit=2&after=" + url.QueryEscape(page.Next)
	}
	if len(all) != 6 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 6 {
		t.Errorf("the pages have %v", all)
	}
	var told []string
	for line := range strings.Lines(r.CLI().Must("jobs", "--json")) {
		var j joblist.Job
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			t.Fatal(err)
		}
		told = append(told, j.Job)
	}
	if !slices.Equal(told, all) {
		t.Errorf("the command lists %v, the API %v", told, all)
	}
	if _, code := r.CLI().Run("jobs", "--api", "pay", "--id", "none"); code != 3 {
		t.Errorf("no job: exit code %d", code)
	}
	close(release)
	r.Eventually("all to be done", func() bool {
		return len(jobsOf(r, "state=done").Jobs) == 4 && len(jobsOf(r, "state=waiting").Jobs) == 0
	})
	r.Stop()
	r.Start()
	r.Eventually("the index after a restart", func() bool { return !jobsOf(r, "").Building })
	if again := jobsOf(r, ""); len(again.Jobs) != 6 || !again.Since.IsZero() {
		t.Errorf("after a restart: %v since %s", named(again.Jobs), again.Since)
	}
	r.CLI().Must("dead", "purge", "--api", "sms", "--yes")
	if dead := jobsOf(r, "state=dead").Jobs; len(dead) != 1 || dead[0].Job != "slow-3" {
		t.Errorf("after a purge the dead are %v", named(dead))
	}
}
