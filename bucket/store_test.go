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

func TestAccountsConform(t *testing.T) { storetest.Accounts(t, storetest.InMemory, 200) }
