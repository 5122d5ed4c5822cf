package embedded

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/nats/jsproxy"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// A server that authenticates clients has two accounts. weir and its operators use the server's own account, which has
// the streams. All other clients use the account of producers, which can reach only its imports from the server's own
// account.
//
// Rights by subject alone would not suffice. A JetStream request names the subject for its answer, and the server
// publishes the answer there with the server's own rights. So a client could turn a stored message into the running
// configuration: it would request the message with the reply subject $KV.weir_config.current. The answer to an imported
// request, however, goes to a subject that the server makes, and the server forwards it to the asking account. Requests
// that name a second subject go to the gate (cmd/weir/internal/nats/jsproxy).
const (
	mainAccount     = "$G" // the name of the directory of its streams
	mainInFile      = "MAIN"
	producerAccount = "producers"
	anybody         = "anybody" // the user of clients without credentials
)

// notHeard are subjects that producers must not subscribe to. A producer that subscribes to one of them could answer
// another producer in weir's place.
var notHeard = []string{"weir.jobs.>", "weir.operator.>", jsproxy.Prefix + ">", "$JS.>", "$KV.>", "$SRV.>", "$SYS.>"}

// producerRights returns the rights of a producer in its account. A producer may publish only to the account's imports,
// so no other producer receives what it publishes.
func producerRights() *server.Permissions {
	allow := []string{"$SYS.REQ.USER.INFO"}
	for _, p := range jsproxy.Passages(jsproxy.Inside) {
		if !p.Heard {
			allow = append(allow, p.Asked)
		}
	}
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: allow}, Subscribe: &server.SubjectPermission{Deny: notHeard},
	}
}

// accounts returns both accounts for the server's options. clients bounds the connections to the account of producers.
func accounts(clients int) (accounts []*server.Account, producers *server.Account, err error) {
	var exports, imports strings.Builder
	for _, p := range jsproxy.Passages(jsproxy.Inside) {
		kind := "service"
		if p.Heard {
			kind = "stream"
			fmt.Fprintf(&exports, "{stream: %q}\n", p.Taken)
		} else {
			fmt.Fprintf(&exports, "{service: %q, response_type: %s}\n", p.Taken, p.Answers())
		}
		fmt.Fprintf(&imports, "{%s: {account: %s, subject: %q}, to: %q}\n", kind, mainInFile, p.Taken, p.Asked)
	}
	// The options are parsed from a text, because only parsing enables JetStream for one of several accounts.
	text := fmt.Sprintf("accounts {\n%s { jetstream: enabled, exports: [\n%s] }\n%s { limits: { max_connections: %d }, imports: [\n%s] }\n}\n",
		mainInFile, exports.String(), producerAccount, clients, imports.String())
	parsed := &server.Options{}
	if err := parsed.ProcessConfigString(text); err != nil {
		return nil, nil, fmt.Errorf("embedded nats-server: accounts: %w", err)
	}
	for _, a := range parsed.Accounts {
		switch a.Name {
		case mainInFile:
			a.Name = mainAccount // a configuration text must not contain this name
		case producerAccount:
			producers = a
		}
	}
	return parsed.Accounts, producers, nil
}

// anyone returns the user for clients without credentials. Its password is random, and no client knows it.
func anyone(producers *server.Account) *server.User {
	return &server.User{
		Username: anybody, Password: nuid.New().Next() + nuid.New().Next(), Account: producers, Permissions: producerRights(),
	}
}
