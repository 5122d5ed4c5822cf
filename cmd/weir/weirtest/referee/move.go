package referee

import (
	"fmt"
	"time"

	"weir/cmd/internal/fakeapi"
)

// JudgeMove compares the calls that the api saw before and after a move with weir's promises.
func (f Referee) JudgeMove(before int) {
	f.T.Helper()
	calls, order := map[string]int{}, map[string][]string{}
	for _, a := range f.API.All() {
		id := string(a.Body)
		calls[id]++
		order[a.Key] = append(order[a.Key], id)
	}
	for n := range 12 {
		for k := range 4 {
			key, id := fmt.Sprint("k", k), fmt.Sprintf("k%d-%d", k, n)
			if calls[id] != 1 {
				f.T.Errorf("%s was called %d times", id, calls[id])
			}
			if n < len(order[key]) && order[key][n] != id {
				f.T.Errorf("call %d of %s is %s", n, key, order[key][n])
			}
		}
	}
	if calls["again-0"] != 2 || calls["bad-0"] != 1 || calls["one too many"] != 0 {
		f.T.Errorf("the others were called %d, %d and %d times", calls["again-0"], calls["bad-0"], calls["one too many"])
	}
	for _, key := range []string{"k0", "k1", "k2", "k3"} {
		// If stamps may be off by more than a second, the rate cannot be judged.
		second := max(time.Second-f.Eps(), 1)
		if most := fakeapi.FullestByCount(fakeapi.OfKey(f.API.All(), key), second); most.Count > 4 {
			f.T.Errorf("%d calls of %s within %s, 4 may", most.Count, key, second)
		}
	}
	f.T.Logf("%d calls before the move, %d in all", before, len(f.API.All()))
}
