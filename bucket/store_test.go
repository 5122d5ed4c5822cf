package bucket_test

import (
	"testing"

	"weir/bucket"
	"weir/bucket/storetest"
)

func TestMemoryConforms(t *testing.T) {
	storetest.Run(t, func(t testing.TB, rules bucket.Rules, clock *storetest.Clock) storetest.Store {
		m, err := bucket.NewMemory(rules, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, 500)
}

func TestAccountsConform(t *testing.T) { storetest.Accounts(t, openAccount, 200) }

// openAccount opens the members of one pool.
func openAccount(t testing.TB, rules []bucket.Rules, clock *storetest.Clock) (stores []storetest.Store) {
	pools := &bucket.Pools{}
	pool, err := bucket.NewMemory(rules[0].Pool(), clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	pools.Add(rules[0].In.Account, pool)
	for i := range rules {
		m, err := bucket.NewMember(rules[i], pools, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, m)
	}
	return stores
}
