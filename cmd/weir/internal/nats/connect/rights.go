package connect

import (
	"fmt"
	"slices"
	"strings"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/config/environment"
)

// permissions are a user's rights as the server reports them.
type permissions struct {
	Publish   *subjects `json:"publish"`
	Subscribe *subjects `json:"subscribe"`
}

// subjects are allowed and denied subjects. If the allow list is empty, every subject that is not denied is allowed.
type subjects struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// allows reports whether every subject that want matches is allowed. want may have wildcards.
func (s *subjects) allows(want string) bool {
	if s == nil {
		return true
	}
	if slices.ContainsFunc(s.Deny, func(denied string) bool { return Overlaps(denied, want) }) {
		return false
	}
	return len(s.Allow) == 0 || slices.ContainsFunc(s.Allow, func(allowed string) bool { return covers(allowed, want) })
}

// rights are the subjects on which a user must be able to publish and to subscribe.
type rights struct{ publish, subscribe []string }

// missing returns, in words, the rights that p does not give.
func (p *permissions) missing(r rights) []string {
	var missing []string
	for _, subject := range r.publish {
		if !p.Publish.allows(subject) {
			missing = append(missing, fmt.Sprintf("publish to %q", subject))
		}
	}
	for _, subject := range r.subscribe {
		if !p.Subscribe.allows(subject) {
			missing = append(missing, fmt.Sprintf("subscribe to %q", subject))
		}
	}
	return missing
}

// workerRights returns the rights that a worker needs from its start on. The role of deploy/nats has a few more, for
// operators' commands by the same user.
func workerRights(s *environment.Settings) rights {
	inbox := s.NATSInbox
	if inbox == "" {
		inbox = "_INBOX"
	}
	r := rights{
		publish: []string{
			"weir.q.>", "weir.o.>", "weir.dead.>", "weir.events.>", "weir.results.>", "weir.calls.>", "_INBOX.>",
			"$JS.API.INFO", "$JS.API.STREAM.NAMES",
		},
		subscribe: []string{inbox + ".>", "$SRV.>"},
	}
	if s.Has(environment.RoleIngest) {
		r.subscribe = append(r.subscribe, "weir.jobs.>", "weir.operator.redrive.>")
	}
	if s.Has(environment.RoleDispatch) {
		r.subscribe = append(r.subscribe, "weir.operator.>")
	}
	streams := append(CommonStreams(), "*") // for apis that are added later
	for _, stream := range streams {
		for _, verb := range []string{"STREAM.INFO.%s", "STREAM.CREATE.%s", "STREAM.UPDATE.%s", "STREAM.MSG.GET.%s", "CONSUMER.CREATE.%s.>"} {
			r.publish = append(r.publish, "$JS.API."+fmt.Sprintf(verb, stream))
		}
	}
	r.publish = append(r.publish, "$JS.API.STREAM.PURGE.*", "$JS.API.STREAM.MSG.DELETE.*", "$JS.API.DIRECT.GET.>")
	for _, bucket := range []string{ConfigBucket, ControlBucket, LeasesBucket} {
		r.publish = append(r.publish, "$KV."+bucket+".>")
	}
	return r
}

// gateRights returns the further rights that a worker needs to answer readers in another account. The answers go to
// subjects that the server makes.
func gateRights() rights {
	return rights{publish: []string{"_R_.>"}, subscribe: []string{"weir.gate.>"}}
}

// The key-value buckets that every weir on a server shares.
const (
	ConfigBucket  = "weir_config"  // the running configuration and its history
	ControlBucket = "weir_control" // pauses, the state of limits, canaries of readiness
	LeasesBucket  = lease.LeasesBucket
)

// CommonStreams returns the streams that every weir creates, independent of its apis.
func CommonStreams() []string {
	return []string{
		"WEIR_DEAD", "WEIR_RESULTS", "WEIR_CALLS", "WEIR_EVENTS", "KV_" + ConfigBucket, "KV_" + ControlBucket, "KV_" + LeasesBucket,
	}
}

// covers reports whether pattern matches every subject that want matches.
func covers(pattern, want string) bool {
	p, w := strings.Split(pattern, "."), strings.Split(want, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(w) > i
		case i >= len(w), w[i] == ">":
			return false
		case token != "*" && token != w[i]:
			return false
		}
	}
	return len(p) == len(w)
}

// Overlaps reports whether a subject exists that both patterns match.
func Overlaps(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(x) && i < len(y); i++ {
		switch {
		case x[i] == ">", y[i] == ">":
			return true
		case x[i] != "*" && y[i] != "*" && x[i] != y[i]:
			return false
		}
	}
	return len(x) == len(y)
}
