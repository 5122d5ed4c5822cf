package weirtest

import (
	"encoding/json"
	"fmt"

	"weir/dispatcher/inquiry"
)

// Order submits one job that will become a letter with the reason unknown.
func (r *Rig) Order(key, order string) {
	r.T.Helper()
	a := r.Submit("weir.jobs.pay."+key, fmt.Appendf(nil, `{"order":%q}`, order), map[string]string{
		"Nats-Msg-Id": order, "Weir-Path": "/pay/" + order, "Weir-Reply-To": "_INBOX.mine." + order,
	})
	if a.Error != nil {
		r.T.Fatal(a.Error)
	}
}

// Reconciled is the output of "weir dead reconcile --json".
type Reconciled struct {
	Letters    int
	Done       int
	Redriven   int
	Overflowed int
	Stays      int
	Gone       int
	Skipped    map[string]int
	Each       []inquiry.Reconciled
}

func (r *Rig) Reconcile(args ...string) (did Reconciled, code int) {
	r.T.Helper()
	out, code := r.Command(append([]string{"dead", "reconcile", "--yes", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &did); err != nil {
			r.T.Fatalf("%s: %v", out, err)
		}
	}
	return did, code
}

// PurgeMemoryOfLetters restarts weir, so that the embedded server forgets the ids of deleted letters.
func (r *Rig) PurgeMemoryOfLetters() {
	r.T.Helper()
	r.Stop()
	r.Start()
}
