package embedded

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/gate"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// Two accounts share the server if it authenticates clients. weir and its operators use the server's own account, which
// has the streams. All other clients are in an account that has nothing but its imports from there.
//
// Rights by subject alone would not suffice. A client that may ask JetStream for anything names the subject of the
// answer, and the server publishes the answer there with its own rights: a stored message, asked for with the reply
// subject $KV.weir_config.current, would become the running configuration. An answer to an imported question comes to a
// subject that the server makes, and is forwarded to the asking account. Questions that name a second subject go to the
// gate instead (cmd/weir/internal/gate).
const (
	mainAccount     = "$G" // its streams stand under this name on the disk
	mainInFile      = "MAIN"
	producerAccount = "producers"
	anybody         = "anybody" // connects without credentials
)

// passage is one kind of question that producers may ask.
type passage struct {
	asked   string // the subject that producers use
	taken   string // in the main account; empty: the same subject
	answers string // "": one answer, otherwise the server's word for several
}

// passages returns all that producers may publish.
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
		{asked: "$JS.API.CONSUMER.INFO.*.*"}, // of names that the client knows already
		{asked: "$JS.API.CONSUMER.CREATE.>", taken: gate.Make + ">"},
		{asked: "$JS.API.CONSUMER.DURABLE.CREATE.>", taken: gate.Durable + ">"},
		{asked: "$JS.API.CONSUMER.DELETE.*.*", taken: gate.Drop + "*.*"},
		{asked: "$JS.API.CONSUMER.MSG.NEXT.*.*", answers: "stream"},
		{asked: "$JS.ACK.>", taken: gate.Ack + ">"},
		{asked: "$JS.FC.>"}, // answers to the flow control of their consumers; each names a number that the server chose
	}
}

// heard returns the subjects of the main account that producers may listen to, and their names in the producers'
// account.
func heard() [][2]string {
	return [][2]string{
		{"weir.events.>", ""}, {"weir.results.>", ""}, {"weir.dead.>", ""}, {"weir.calls.>", ""}, {gate.ReplyPrefix + ">", ">"},
	}
}

// notHeard are subjects on which a producer could answer another in weir's place.
var notHeard = []string{"weir.jobs.>", "weir.operator.>", gate.Prefix + ">", "$JS.>", "$KV.>", "$SRV.>", "$SYS.>"}

// producerRights returns what a producer may do in its account: what the account imports, and nothing that other
// producers would hear.
func producerRights() *server.Permissions {
	allow := []string{"$SYS.REQ.USER.INFO"}
	for _, p := range passages() {
		allow = append(allow, p.asked)
	}
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: allow}, Subscribe: &server.SubjectPermission{Deny: notHeard},
	}
}

// accounts returns both accounts for the server's options, with at most this many clients of producers.
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
	// The options come from a text, because only that enables JetStream for one of several accounts.
	text := fmt.Sprintf("accounts {\n%s { jetstream: enabled, exports: [\n%s] }\n%s { limits: { max_connections: %d }, imports: [\n%s] }\n}\n",
		mainInFile, exports.String(), producerAccount, clients, imports.String())
	parsed := &server.Options{}
	if err := parsed.ProcessConfigString(text); err != nil {
		return nil, nil, fmt.Errorf("embedded nats-server: accounts: %w", err)
	}
	for _, a := range parsed.Accounts {
		switch a.Name {
		case mainInFile:
			a.Name = mainAccount // a text must not contain this name
		case producerAccount:
			producers = a
		}
	}
	return parsed.Accounts, producers, nil
}

// anyone returns the user for clients without credentials. Its password is known to no client.
func anyone(producers *server.Account) *server.User {
	return &server.User{
		Username: anybody, Password: nuid.New().Next() + nuid.New().Next(), Account: producers, Permissions: producerRights(),
	}
}
