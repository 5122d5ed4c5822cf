package connect

import (
	"slices"
	"testing"

	"weir/cmd/weir/internal/config/environment"

	"github.com/nats-io/nats-server/v2/server"
)

// TestRightsThatAreMissing checks that a user has a right only if all of its subjects are allowed and none is denied.
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

// TestRightsByRole checks that a replica that only accepts jobs needs no right to answer operators, and that a replica
// that only dispatches needs no right to accept jobs.
func TestRightsByRole(t *testing.T) {
	intake := workerRights(&environment.Settings{Roles: []environment.Role{environment.RoleIngest}}).subscribe
	dispatch := workerRights(&environment.Settings{Roles: []environment.Role{environment.RoleDispatch}, NATSInbox: "_INBOX.w"}).subscribe
	if !slices.Contains(intake, "weir.jobs.>") || slices.Contains(intake, "weir.operator.>") || !slices.Contains(intake, "_INBOX.>") {
		t.Errorf("an intake subscribes to %v", intake)
	}
	if slices.Contains(dispatch, "weir.jobs.>") || !slices.Contains(dispatch, "weir.operator.>") || !slices.Contains(dispatch, "_INBOX.w.>") {
		t.Errorf("a dispatcher subscribes to %v", dispatch)
	}
}

// TestRoleHasTheRights checks that the role worker of deploy/nats has every right that a worker needs, including those
// of its gate.
func TestRoleHasTheRights(t *testing.T) {
	for _, role := range []string{"PRODUCER", "WORKER", "OPERATOR", "VIEWER", "MOVER", "SYS"} {
		t.Setenv("NATS_"+role+"_PASSWORD", role)
	}
	t.Setenv("NATS_WEIR_STORE", "80G")
	opts, err := server.ProcessConfigFile("../../../../../deploy/nats/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(opts.Users, func(u *server.User) bool { return u.Username == "worker" })
	if at < 0 {
		t.Fatal("there is no user worker")
	}
	given := opts.Users[at].Permissions
	may := permissions{Publish: &subjects{Allow: given.Publish.Allow}, Subscribe: &subjects{Allow: given.Subscribe.Allow}}
	s := &environment.Settings{Roles: []environment.Role{environment.RoleDispatch, environment.RoleIngest}, NATSInbox: "_INBOX.worker"}
	if missing := append(may.missing(workerRights(s)), may.missing(gateRights())...); len(missing) > 0 {
		t.Errorf("the role worker may not %q", missing)
	}
}
