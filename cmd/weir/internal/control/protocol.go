package control

import (
	"encoding/json"
	"time"

	"weir/cmd/weir/internal/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/schedule"
)

// Operators' questions to the running dispatchers. Every replica answers every question for what it owns, so there is no
// queue group; whoever asks gathers the answers.
const (
	operatorService = "weir-operator"
	keysSubject     = "weir.operator.keys."   // + api
	showSubject     = "weir.operator.show."   // + api.keytoken
	pausedSubject   = "weir.operator.paused." // + api.keytoken
	cancelSubject   = "weir.operator.cancel." // + api
	trySubject      = "weir.operator.try."    // + api
	configSubject   = "weir.operator.config"
	statusSubject   = "weir.operator.status"
	findSubject     = "weir.operator.find."    // + api
	historySubject  = "weir.operator.history." // + api

	reconcileSubject = "weir.operator.reconcile." // + api
)

// How long answers are waited for: the first, and each further one.
const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	showTimeout = 4 * time.Second // of the owner itself, loading jobs

	reconcileTimeout = 100 * time.Second // of the owner itself: the inquiry's rate, a slot, the right to end letters, the api

	cancelTimeout = 50 * time.Second // of the owner itself, reading the headers of all that waits
)

// answerWaits are how long answers are waited for.
type answerWaits struct{ first, next time.Duration }

// cancelWaits are for owners that read their queues first, one sooner than another.
var cancelWaits = answerWaits{time.Minute, 10 * time.Second}

// inquiry is what a question says besides its subject.
type inquiry struct {
	Limit int                  `json:"limit"`
	After *dispatcher.KeyPlace `json:"after,omitempty"` // of keys: only those behind it
	Match string               `json:"match,omitempty"` // of keys: only those that contain it
}

// keysAnswer is one replica's answer about an api.
type keysAnswer struct {
	dispatcher.APIState
	Deepest []schedule.KeyState `json:"deepest"`
	// Resting are paused keys without jobs, as many as were asked for, of RestingAll.
	Resting    []schedule.KeyState `json:"resting,omitempty"`
	RestingAll int                 `json:"resting_all,omitempty"`
}

// KeyShown is a key's bucket with the limits that all keys share, as far as they count something.
type KeyShown struct {
	dispatcher.KeyDetail
	Limits []limitstate.LimitShown `json:"limits,omitempty"`
}

// Error codes of an answer.
const (
	codeNoAPI  = "404"
	codeNoKey  = "410"
	codeNotOur = "421" // another replica owns the key
	codeFailed = "500"

	codeNoInquiry = "409" // the api cannot be asked
	codeHeld      = "423" // somebody redrives or purges
)

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("an answer that JSON cannot carry: " + err.Error())
	}
	return data
}
