package connect

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestTolerate checks that a refusal of a tolerated subject ends only the request on it. Other refusals are reported
// meanwhile.
func TestTolerate(t *testing.T) {
	refusal := func(subject string) error {
		return fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject)
	}
	d, told := &Denials{}, 0
	d.Tell(func(error) { told++ })
	asking, done := d.Tolerate(t.Context(), "$SRV.PING.weir")
	d.Note(refusal("weir.operator.status"))
	if err := d.Explain(errors.New("why")); told != 1 || asking.Err() != nil || !strings.Contains(err.Error(), "weir.operator.status") {
		t.Errorf("a refusal elsewhere: told %d times, %v, %v", told, asking.Err(), err)
	}
	d.Note(refusal("$SRV.PING.weir"))
	if err := d.Explain(errors.New("why")); told != 1 || asking.Err() == nil || strings.Contains(err.Error(), "$SRV") {
		t.Errorf("a refusal there: told %d times, %v, %v", told, asking.Err(), err)
	}
	done()
	d.Note(refusal("$SRV.PING.weir"))
	if err := d.Explain(errors.New("why")); told != 2 || !strings.Contains(err.Error(), "weir.operator.status\"; ") || !strings.Contains(err.Error(), "$SRV.PING.weir") {
		t.Errorf("a refusal there behind it: told %d times, %v", told, err)
	}
}

// TestForgive checks that a refusal of a forgiven subject ends a request on it, and is reported at no time.
func TestForgive(t *testing.T) {
	refusal := func(subject string) error {
		return fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject)
	}
	d, told := &Denials{}, 0
	d.Tell(func(error) { told++ })
	d.Forgive(SyncRight)
	d.Forgive(SyncRight)
	asking, done := d.Tolerate(t.Context(), SyncRight)
	if !d.Note(refusal(SyncRight)) || asking.Err() == nil {
		t.Error("the refusal does not end the request, or is to be reported")
	}
	done()
	if !d.Note(refusal(SyncRight)) || d.Any() || told != 0 {
		t.Errorf("a late refusal was reported; told %d times", told)
	}
	if d.Note(refusal("weir.operator.status")) || !d.Any() || told != 1 || len(d.forgiven) != 1 {
		t.Errorf("a refusal elsewhere was not reported; told %d times", told)
	}
}
