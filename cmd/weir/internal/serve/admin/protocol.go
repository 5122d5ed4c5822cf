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

// Subjects of operators' questions to the dispatching replicas. Every replica answers for the partitions that it owns,
// so most endpoints have no queue group, and the asking process gathers the answers. Two kinds have a queue group:
// questions to the index of ended jobs, because each replica has the whole index, and tests of receivers, because one
// replica must post.
const (
	operatorService = "weir-operator"
	configSubject   = "weir.operator.config"
	statusSubject   = "weir.operator.status"
	jobsSubject     = "weir.operator.jobs"   // unfinished jobs
	endedSubject    = "weir.operator.ended"  // ended jobs
	tracesSubject   = "weir.operator.traces" // what is recorded of a job id
	spentSubject    = "weir.operator.spent"  // what was spent
	notifySubject   = "weir.operator.notify" // tests of receivers; one replica answers
	aloneSubject    = "weir.operator.alone"  // answered as long as a weir without a lease may call

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

// apiAsked returns the api that a question's subject names. It returns "", which is no api's name, if the subject is
// malformed.
func apiAsked(of ingest.Subjects, subject string) string {
	names, ok := of.Names(subject, 1)
	if !ok {
		return ""
	}
	return names[0]
}

// keyAsked returns the api and the key that a question's subject names. The key is "" if the question is about the
// whole api.
func keyAsked(of ingest.Subjects, subject string) (api, key string, err error) {
	names, ok := of.Names(subject, 2)
	if !ok {
		return "", "", errors.New("the subject names no api and key")
	}
	return names[0], names[1], nil
}

// firstAnswer and nextAnswer are how long the asking process waits for the first answer and for each further one. The
// other values bound the time in which a replica prepares its answer.
const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	showTimeout = 4 * time.Second // the owner loads jobs

	// Long, because the owner waits for the inquiry's rate, a slot, the right to end letters, and the api.
	reconcileTimeout = 100 * time.Second

	cancelTimeout = 50 * time.Second // the owner may have to read its queue first
)

// answerWaits is how long to wait for the first answer and for each next one.
type answerWaits struct{ first, next time.Duration }

// cancelWaits is long, because an owner may have to read its queue before it answers, and one queue may be much longer
// than another.
var cancelWaits = answerWaits{time.Minute, 10 * time.Second}

// question is the body of a question about keys.
type question struct {
	Limit int            `json:"limit"`
	After *desk.KeyPlace `json:"after,omitempty"` // only keys behind this place
	Match string         `json:"match,omitempty"` // only keys that contain this text
}

// useQuestion is the body of a question about the configuration. If it names an account, it also asks how much of the
// account the replica uses.
type useQuestion struct {
	Account string `json:"account,omitempty"`
}

// useWithin bounds how long a replica may take to find out what limits have in use. useWaits allows more time, so that
// a replica whose Redis does not answer does not count as silent.
const useWithin = 500 * time.Millisecond

var useWaits = answerWaits{firstAnswer, useWithin + 250*time.Millisecond}

// keysAnswer is one replica's answer about the keys of an api.
type keysAnswer struct {
	desk.APIState
	Deepest []schedule.KeyState `json:"deepest"`
	// Resting holds paused keys without jobs, at most as many as the question's Limit. RestingAll is how many there
	// are.
	Resting    []schedule.KeyState `json:"resting,omitempty"`
	RestingAll int                 `json:"resting_all,omitempty"`
}

// KeyShown is a key's bucket with the levels of the api's shared limits.
type KeyShown struct {
	desk.KeyDetail
	Limits   []limitstate.LimitShown `json:"limits,omitempty"`
	Callback *CallbackStatus         `json:"callback,omitempty"` // of the api; nil: it has none
}

// Error codes of an answer.
const (
	codeNoAPI  = "404"
	codeNoKey  = "410"
	codeNotOur = "421" // another replica owns the key
	codeFailed = "500"

	codeNoLedger  = "424"
	codeNoInquiry = "409" // the api has no inquiry
	codeHeld      = "423" // another process is redriving or purging letters
)

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("an answer that JSON cannot carry: " + err.Error())
	}
	return data
}
