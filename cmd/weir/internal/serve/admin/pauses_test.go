package admin

import (
	"slices"
	"testing"
)

// TestHoldsAreLoggedWithoutWhatIsNotSo: a pause of a whole api has no key, and not every pause a reason.
func TestHoldsAreLoggedWithoutWhatIsNotSo(t *testing.T) {
	if got := whatHolds("sms", "", "by", "me", "reason", ""); !slices.Equal(got, []any{"api", "sms", "by", "me"}) {
		t.Errorf("of an api: %v", got)
	}
	if got := whatHolds("sms", "k", "by", "", "reason", "x"); !slices.Equal(got, []any{"api", "sms", "key", "k", "reason", "x"}) {
		t.Errorf("of a key: %v", got)
	}
}
