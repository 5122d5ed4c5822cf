package connect

import (
	"slices"
	"testing"

	"weir/cmd/weir/internal/config"
)

// TestRightsThatAreMissing: a right is given by what is allowed to all of it and denied to nothing of it.
func TestRightsThatAreMissing(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		want        string
		given       bool
	}{
		{nil, nil, "weir.q.>", true},
		{[]string{">"}, nil, "weir.q.>", true},
		{[]string{"weir.>"}, nil, "weir.q.>", true},
		{[]string{"weir.*.>"}, nil, "weir.q.>", true},
		{[]string{"weir.q.*"}, nil, "weir.q.>", false},
		{[]string{"weir.q.pay"}, nil, "weir.q.*", false},
		{[]string{"weir.q.*"}, nil, "weir.q.*", true},
		{[]string{"weir.*"}, nil, "weir.q.*", false},
		{[]string{"other.>"}, nil, "weir.q.>", false},
		{nil, []string{"weir.q.pay.0"}, "weir.q.>", false},
		{[]string{">"}, []string{"weir.dead.>"}, "weir.q.>", true},
		{[]string{">"}, []string{"*.q.>"}, "weir.q.>", false},
	} {
		p := permissions{Publish: &subjects{Allow: c.allow, Deny: c.deny}}
		missing := p.missing(rights{publish: []string{c.want}})
		if given := len(missing) == 0; given != c.given {
			t.Errorf("allow %v, deny %v: %s is given: %v", c.allow, c.deny, c.want, given)
		}
	}
}

// TestRightsByRole: a replica that only accepts jobs needs no right to answer operators, and the other way round.
func TestRightsByRole(t *testing.T) {
	intake := workerRights(&config.Settings{Roles: []config.Role{config.RoleIngest}}).subscribe
	dispatch := workerRights(&config.Settings{Roles: []config.Role{config.RoleDispatch}, NATSInbox: "_INBOX.w"}).subscribe
	if !slices.Contains(intake, "weir.jobs.>") || slices.Contains(intake, "weir.operator.>") || !slices.Contains(intake, "_INBOX.>") {
		t.Errorf("an intake subscribes to %v", intake)
	}
	if slices.Contains(dispatch, "weir.jobs.>") || !slices.Contains(dispatch, "weir.operator.>") || !slices.Contains(dispatch, "_INBOX.w.>") {
		t.Errorf("a dispatcher subscribes to %v", dispatch)
	}
}
