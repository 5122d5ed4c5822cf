package weirtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/cmd/internal/fakeapi"

	"github.com/nats-io/nats-server/v2/server"
)

func AwaitCluster(t *testing.T, servers []*server.Server) {
	t.Helper()
	(&Rig{T: t}).Eventually("a leader that knows the others", func() bool {
		return slices.ContainsFunc(servers, func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == len(servers) })
	})
}

// StartTarget runs a single nats-server and returns its address.
func StartTarget(t *testing.T) string {
	t.Helper()
	return StartNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20,
	}).ClientURL()
}

// JudgeMove compares the calls that the api saw before and after a move with weir's promises.
func (r *Rig) JudgeMove(before int) {
	r.T.Helper()
	calls, order := map[string]int{}, map[string][]string{}
	for _, a := range r.API.All() {
		id := string(a.Body)
		calls[id]++
		order[a.Key] = append(order[a.Key], id)
	}
	for n := range 12 {
		for k := range 4 {
			key, id := fmt.Sprint("k", k), fmt.Sprintf("k%d-%d", k, n)
			if calls[id] != 1 {
				r.T.Errorf("%s was called %d times", id, calls[id])
			}
			if n < len(order[key]) && order[key][n] != id {
				r.T.Errorf("call %d of %s is %s", n, key, order[key][n])
			}
		}
	}
	if calls["again-0"] != 2 || calls["bad-0"] != 1 || calls["one too many"] != 0 {
		r.T.Errorf("the others were called %d, %d and %d times", calls["again-0"], calls["bad-0"], calls["one too many"])
	}
	for _, key := range []string{"k0", "k1", "k2", "k3"} {
		// If stamps may be off by more than a second, the rate cannot be judged.
		second := max(time.Second-r.Referee().Eps(), 1)
		if most := fakeapi.FullestByCount(fakeapi.OfKey(r.API.All(), key), second); most.Count > 4 {
			r.T.Errorf("%d calls of %s within %s, 4 may", most.Count, key, second)
		}
	}
	r.T.Logf("%d calls before the move, %d in all", before, len(r.API.All()))
}
