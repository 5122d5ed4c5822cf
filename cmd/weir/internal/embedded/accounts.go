package embedded

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/gate"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// Two accounts share the server, where it asks who connects. weir and its operators are in the server's own, which has the streams.
// Everybody else is in an account that has nothing but what it imports from there.
//
// Rights by subject alone would not do. Whoever may ask JetStream for anything names the subject of the answer, and the server
// publishes it there with rights of its own: a stored message, asked for with the reply subject $KV.weir_config.current, becomes the
// running configuration. An answer to an imported question comes to a subject that the server makes, and goes on to its account.
// What names a second subject besides is asked of the gate (cmd/weir/internal/gate).
const (
	mainAccount     = "$G" // its streams stand under this name on the disk
	mainInFile      = "MAIN"
	producerAccount = "producers"
	anybody         = "anybody" // connects without credentials
)

// passage is one thing that producers may ask for.
type passage struct {
	asked   string // by them
	taken   string // in the main account; empty: the same subject
	answers string // "": one, else the server's word for several
}

// passages are all that producers may publish.
func passages() []passage {
	return []passage{
		{asked: "weir.jobs.>"},
		{asked: "weir.operator.keys.*", answers: "stream"},
		{asked: "weir.operator.show.*.*", answers: "stream"},
		{asked: connect.Whereabouts},
		{asked: "$SRV.PING", answers: "stream"},
		{asked: "$SRV.INFO", answers: "stream"},
		{asked: "$SRV.STATS", answers: "stream"},
		{asked: "$SRV.PING.>", answers: "stream"},
		{asked: "$SRV.INFO.>", answers: "stream"},
		{asked: "$SRV.STATS.>", answers: "stream"},
		{asked: "$JS.API.INFO"},
		{asked: "$JS.API.STREAM.NAMES"},
		{asked: "$JS.API.STREAM.LIST"},
		{asked: "$JS.API.STREAM.INFO.*"},
		{asked: "$JS.API.STREAM.MSG.GET.*"},
		{asked: "$JS.API.DIRECT.GET.*"},
		{asked: "$JS.API.DIRECT.GET.*.>"},
		{asked: "$JS.API.CONSUMER.NAMES.*", taken: gate.Names + "*"},
		{asked: "$JS.API.CONSUMER.LIST.*", taken: gate.List + "*"},
		{asked: "$JS.API.CONSUMER.INFO.*.*"}, // of names that are known already
		{asked: "$JS.API.CONSUMER.CREATE.>", taken: gate.Make + ">"},
		{asked: "$JS.API.CONSUMER.DURABLE.CREATE.>", taken: gate.Durable + ">"},
		{asked: "$JS.API.CONSUMER.DELETE.*.*", taken: gate.Drop + "*.*"},
		{asked: "$JS.API.CONSUMER.MSG.NEXT.*.*", answers: "stream"},
		{asked: "$JS.ACK.>", taken: gate.Ack + ">"},
		{asked: "$JS.FC.>"}, // answers to the flow control of their consumers; each names a number that the server chose
	}
}

// heard are the subjects of the main account that producers may listen to, and what they are called there.
func heard() [][2]string {
	return [][2]string{
		{"weir.events.>", ""}, {"weir.results.>", ""}, {"weir.dead.>", ""}, {"weir.calls.>", ""}, {gate.ReplyPrefix + ">", ">"},
	}
}

// notHeard are subjects on which producers could answer each other in weir's place.
var notHeard = []string{"weir.jobs.>", "weir.operator.>", gate.Prefix + ">", "$JS.>", "$KV.>", "$SRV.>", "$SYS.>"}

// producerRights are what a producer may do in his account: what his account imports, and nothing that others there would hear.
func producerRights() *server.Permissions {
	allow := []string{"$SYS.REQ.USER.INFO"}
	for _, p := range passages() {
		allow = append(allow, p.asked)
	}
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: allow}, Subscribe: &server.SubjectPermission{Deny: notHeard},
	}
}

// accounts are the two as the server's options have them, with at most this many clients of producers.
func accounts(clients int) (accounts []*server.Account, producers *server.Account, err error) {
	var exports, imports strings.Builder
	for _, p := range passages() {
		taken, answers := p.taken, p.answers
		if taken == "" {
			taken = p.asked
		}
		if answers == "" {
			answers = "singleton"
		}
		fmt.Fprintf(&exports, "{service: %q, response_type: %s}\n", taken, answers)
		fmt.Fprintf(&imports, "{service: {account: %s, subject: %q}, to: %q}\n", mainInFile, taken, p.asked)
	}
	for _, s := range heard() {
		fmt.Fprintf(&exports, "{stream: %q}\n", s[0])
		as := s[0]
		if s[1] != "" {
			as = s[1]
		}
		fmt.Fprintf(&imports, "{stream: {account: %s, subject: %q}, to: %q}\n", mainInFile, s[0], as)
	}
	// In a text, since only that enables JetStream for an account of several.
	text := fmt.Sprintf("accounts {\n%s { jetstream: enabled, exports: [\n%s] }\n%s { limits: { max_connections: %d }, imports: [\n%s] }\n}\n",
		mainInFile, exports.String(), producerAccount, clients, imports.String())
	parsed := &server.Options{}
	if err := parsed.ProcessConfigString(text); err != nil {
		return nil, nil, fmt.Errorf("embedded nats-server: accounts: %w", err)
	}
	for _, a := range parsed.Accounts {
		switch a.Name {
		case mainInFile:
			a.Name = mainAccount // which no text may name
		case producerAccount:
			producers = a
		}
	}
	return parsed.Accounts, producers, nil
}

// anyone is the user of whoever shows no credentials. Nobody knows the password.
func anyone(producers *server.Account) *server.User {
	return &server.User{
		Username: anybody, Password: nuid.New().Next() + nuid.New().Next(), Account: producers, Permissions: producerRights(),
	}
}
