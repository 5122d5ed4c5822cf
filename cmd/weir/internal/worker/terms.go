package worker

import (
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
)

// RedriveTerms looks up what a redrive must know of an api.
func RedriveTerms(current *config.Config) func(api string) (deadletter.Terms, bool) {
	return func(name string) (deadletter.Terms, bool) {
		api, ok := current.API(name)
		if !ok {
			return deadletter.Terms{}, false
		}
		return deadletter.Terms{
			Rules: api.Rules, Price: int64(api.Price), Idempotent: api.Idempotency != nil, Keyed: DispatchAPI(api, current).KeyIdentity(), KeyInSubject: api.Key.From == config.KeyFromSubject,
		}, true
	}
}
