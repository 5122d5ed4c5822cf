package desk

import (
	"errors"
	"fmt"
	"testing"

	"weir/dispatcher/schedule"
)

// TestWholeAPICanAlwaysBePaused checks that MaxPauses bounds the single keys that are paused, and not the pause of the
// whole api, which the error of the bound asks for.
func TestWholeAPICanAlwaysBePaused(t *testing.T) {
	d := New("one")
	for n := range MaxPauses {
		if err := d.Pause("pay", fmt.Sprint("k", n), schedule.Pause{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"before", "after"} {
		if err := d.Pause("pay", "one-more", schedule.Pause{}); !errors.Is(err, ErrTooManyPauses) {
			t.Errorf("%s the api is paused, one key more: %v", when, err)
		}
		if err := d.Pause("pay", "k7", schedule.Pause{}); err != nil {
			t.Errorf("%s the api is paused, a paused key again: %v", when, err)
		}
		if err := d.Pause("pay", "", schedule.Pause{}); err != nil {
			t.Errorf("the whole api: %v", err)
		}
	}
}
