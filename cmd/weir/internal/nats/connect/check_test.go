package connect

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestRoomCountsEachByteOnce checks the room of an account with three replicas, 20 of whose 30 bytes a replica are used.
// The server multiplies a tier's limit by the replicas, and not an account's.
func TestRoomCountsEachByteOnce(t *testing.T) {
	t.Parallel()
	account := jetstream.Tier{Store: 60, Limits: jetstream.AccountLimits{MaxStore: 90}}
	tier := jetstream.Tier{Store: 60, Limits: jetstream.AccountLimits{MaxStore: 30}}
	for name, info := range map[string]*jetstream.AccountInfo{
		"account": {Tier: account},
		"tier":    {Tier: jetstream.Tier{Store: 1000}, Tiers: map[string]jetstream.Tier{"R1": {Store: 940}, "R3": tier}},
	} {
		if used, most := Room(info, 3); used != 20 || most != 30 {
			t.Errorf("%s: %d of %d bytes are used", name, used, most)
		}
	}
	for _, limit := range []int64{-1, 0} {
		if _, most := Room(&jetstream.AccountInfo{Tier: jetstream.Tier{Limits: jetstream.AccountLimits{MaxStore: limit}}}, 3); most != 0 {
			t.Errorf("the limit %d comes to a room of %d", limit, most)
		}
	}
}
