package admin

import (
	"encoding/json"

	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/desk"
	"weir/ingest"
)

// ownersQuestion is a question about an api, sent to every replica. Each replica answers for the partitions that it
// owns.
type ownersQuestion struct {
	subject ingest.Subjects
	api     string
	body    any
	waits   answerWaits
	unknown error // the error if a replica does not know the api; nil: ignore that replica, because another one may know the api
}

// ownersHeard sums up which owners have answered.
type ownersHeard struct {
	owned, partitions int   // the replicas that have answered own owned of the api's partitions; partitions is 1 until a replica has told the number
	failed            error // the last error among the answers; nil if there was none
}

// askOwners passes each answer to add, until the owners of all partitions have answered or no more answers come. add
// returns the api's state in the answer, and the error in the answer. askOwners fails if no replica answered at all.
func askOwners[A any](c *connect.Connection, q ownersQuestion, add func(*A) (desk.APIState, error)) (ownersHeard, error) {
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
