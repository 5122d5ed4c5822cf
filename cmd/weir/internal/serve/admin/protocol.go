package admin

import (
	"encoding/json"
	"errors"
	"time"

	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Operators' questions to the running dispatchers. Every replica answers every question for what it owns, so there is
// no queue group. The asking process gathers the answers. Only questions to the index of ended jobs have one, because
// each replica has all of it, and tests of receivers, which one replica makes.
const (
	operatorService = "weir-operator"
	configSubject   = "weir.operator.config"
	statusSubject   = "weir.operator.status"
	jobsSubject     = "weir.operator.jobs"   // unfinished jobs
	endedSubject    = "weir.operator.ended"  // jobs that have ended
	tracesSubject   = "weir.operator.traces" // what is recorded of an id
	spentSubject    = "weir.operator.spent"  // what was spent
	notifySubject   = "weir.operator.notify" // one replica answers, for all

	keysSubject      ingest.Subjects = "weir.operator.keys."      // of an api
	showSubject      ingest.Subjects = "weir.operator.show."      // of an api and a key
	pausedSubject    ingest.Subjects = "weir.operator.paused."    // of an api and a key
	cancelSubject    ingest.Subjects = "weir.operator.cancel."    // of an api
	trySubject       ingest.Subjects = "weir.operator.try."       // of an api
	useSubject       ingest.Subjects = "weir.operator.use."       // of an api
	findSubject      ingest.Subjects = "weir.operator.find."      // of an api
	historySubject   ingest.Subjects = "weir.operator.history."   // of an api
	reconcileSubject ingest.Subjects = "weir.operator.reconcile." // of an api
)

// apiAsked returns the api that a question's subject names, or "", which is the name of no api, if the subject is not
// well formed.
func apiAsked(of ingest.Subjects, subject string) string {
	names, ok := of.Names(subject, 1)
	if !ok {
		return ""
	}
	return names[0]
}

// keyAsked returns the key that a question's subject names, with its api. The key is "" if the question is about the
// whole api.
func keyAsked(of ingest.Subjects, subject string) (api, key string, err error) {
	names, ok := of.Names(subject, 2)
	if !ok {
		return "", "", errors.New("the subject names no api and key")
	}
	return names[0], names[1], nil
}

// How long to wait for answers: for the first, and for each further one.
const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	showTimeout = 4 * time.Second // of the owner itself, loading jobs

	reconcileTimeout = 100 * time.Second // of the owner itself: the inquiry's rate, a slot, the right to end letters, the api

	cancelTimeout = 50 * time.Second // of the owner itself, which may have to read its queue first
)

// answerWaits is how long to wait for the first answer and for each next one.
type answerWaits struct{ first, next time.Duration }

// cancelWaits suits owners that read their queues first, which takes some longer than others.
var cancelWaits = answerWaits{time.Minute, 10 * time.Second}

// question is what a question says besides its subject.
type question struct {
	Limit int            `json:"limit"`
	After *desk.KeyPlace `json:"after,omitempty"` // of keys: only those behind it
	Match string         `json:"match,omitempty"` // of keys: only those that contain it
}

// keysAnswer is one replica's answer about an api.
type keysAnswer struct {
	desk.APIState
	Deepest []schedule.KeyState `json:"deepest"`
	// Resting holds as many paused keys without jobs as were asked for, of RestingAll.
	Resting    []schedule.KeyState `json:"resting,omitempty"`
	RestingAll int                 `json:"resting_all,omitempty"`
}

// KeyShown is a key's bucket with the limits that all keys share, as far as they count anything.
type KeyShown struct {
	desk.KeyDetail
	Limits []limitstate.LimitShown `json:"limits,omitempty"`
}

// Error codes of an answer.
const (
	codeNoAPI  = "404"
	codeNoKey  = "410"
	codeNotOur = "421" // another replica owns the key
	codeFailed = "500"

	codeNoLedger  = "424"
	codeNoInquiry = "409" // the api cannot be asked
	codeHeld      = "423" // another process redrives or purges
)

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("an answer that JSON cannot carry: " + err.Error())
	}
	return data
}
