package control

import (
	"encoding/json"

	"weir/cmd/weir/internal/connect"
	"weir/dispatcher"
	"weir/ingest"
)

// ownersQuestion is put to every replica about what it owns of an api.
type ownersQuestion struct {
	subject ingest.Subjects
	api     string
	body    any
	waits   answerWaits
	unknown error // what a replica means that does not know the api; nil: it is passed over, another may know it
}

// ownersHeard is who has answered.
type ownersHeard struct {
	owned, partitions int   // of so many of the api's partitions the owner has answered; of 1 partition until somebody said how many there are
	failed            error // the last answer that was none, nil where all were
}

// askOwners gives each answer to add, until the owners of all partitions have answered, or no more come. add says which state of the api is
// in the answer, and what failed beside it. It fails where nobody was heard at all.
func askOwners[A any](c *connect.Connection, q ownersQuestion, add func(*A) (dispatcher.APIState, error)) (ownersHeard, error) {
	heard := ownersHeard{partitions: 1}
	err := askFor(c, q.subject.Of(q.api), marshal(q.body), q.waits, func(data []byte, wrong *operatorError) bool {
		var a A
		switch {
		case wrong != nil && wrong.code == codeNoAPI && q.unknown == nil:
			return false
		case wrong != nil && wrong.code == codeNoAPI:
			heard.failed = q.unknown
			return true
		case wrong != nil:
			heard.failed = wrong
			return false
		case json.Unmarshal(data, &a) != nil:
			heard.failed = errUnreadable
			return false
		}
		state, failed := add(&a)
		if failed != nil {
			heard.failed = failed
		}
		heard.owned, heard.partitions = heard.owned+state.Owned, state.Partitions
		return heard.owned >= heard.partitions
	})
	return heard, err
}
