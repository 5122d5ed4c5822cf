package embedded

import (
	"fmt"
	"strings"

	"weir/cmd/weir/internal/nats/jsproxy"

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
// gate instead (cmd/weir/internal/nats/jsproxy).
const (
	mainAccount     = "$G" // its streams stand under this name on the disk
	mainInFile      = "MAIN"
	producerAccount = "producers"
	anybody         = "anybody" // connects without credentials
)

// notHeard are subjects on which a producer could answer another in weir's place.
var notHeard = []string{"weir.jobs.>", "weir.operator.>", jsproxy.Prefix + ">", "$JS.>", "$KV.>", "$SRV.>", "$SYS.>"}

// producerRights returns what a producer may do in its account: what the account imports, and nothing that other
// producers would hear.
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

// accounts returns both accounts for the server's options, with at most this many clients of producers.
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
