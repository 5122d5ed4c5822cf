package weirtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/store"
)

// DeniedJobs is how many jobs each api of TestDenial has, over DenialKeys keys.
const (
	DeniedJobs = 40
	DenialKeys = 4
	denialMin  = 100 * time.Millisecond
)

// CheckDenial waits until every job of the api that answers with status is done. It then checks the calls, the results,
// and told, the text of the event.
func (r *Rig) CheckDenial(t *testing.T, status int, told string) {
	name := fmt.Sprintf("on%d", status)
	for _, word := range []string{strconv.Itoa(status), name, "weir resume " + name, "retry.reject"} {
		if !strings.Contains(told, word) {
			t.Errorf("the event does not say %q: %s", word, told)
		}
	}
	if strings.Contains(told, "secret") || strings.Contains(told, "pass@") || status < 400 && !strings.Contains(told, "https://moved.example") {
		t.Errorf("the event tells too much or too little of where the api points: %s", told)
	}
	for k := range DenialKeys {
		key := fmt.Sprintf("key-%d", k)
		r.Store().Ended(name, key, DeniedJobs/DenialKeys)
		for _, letter := range r.Store().Letters(name, key) {
			t.Errorf("a job was given up though the api only refused weir: %v", letter.Header)
		}
		for _, result := range r.Store().Results(name, key) {
			if n := store.Number(t, result.Header, "Weir-Attempts"); n != 1 {
				t.Errorf("job %s was done after %d attempts", result.Header.Get("Weir-Job-Id"), n)
			}
		}
	}
	var first []string // jobs that are called one after another
	for _, a := range referee.CallsOf(r.API, status) {
		if id := string(a.Body); a.Key == "key-0" && !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	if !slices.IsSorted(first) || len(first) != DeniedJobs/DenialKeys {
		t.Errorf("jobs of a key were called for the first time in the order %v", first)
	}
	var denied []fakeapi.Arrival
	for _, a := range referee.CallsOf(r.API, status) {
		if a.Status != http.StatusOK {
			denied = append(denied, a)
		}
	}
	const atOnce = 3*4 + 1 // four concurrent calls for three keys, and one call for one key
	took := time.Duration(denied[len(denied)-1].At - denied[0].At)
	if most := atOnce + 2 + int(took/(denialMin*3/4)); len(denied) > most {
		t.Errorf("%d calls were refused in %v: %d at once, then one at a time, make at most %d", len(denied), took, atOnce, most)
	}
	for _, c := range r.Store().Ledger(name, "key-0") {
		if c.Status == status && (c.Outcome != "denied" || c.Attempt != 0 || c.Billed != "no" || c.Final) {
			t.Errorf("the ledger says of a call that was refused: %+v", c)
		}
	}
}
