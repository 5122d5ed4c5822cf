package jsproxy

import (
	"slices"

	"weir/cmd/weir/internal/nats/connect"
)

// Readers is a set of accounts, besides weir's own, whose clients may send some requests to weir's account and read
// some of its messages.
type Readers int

const (
	// Inside are the clients of the embedded server that have no operator's credentials.
	Inside Readers = 1 << iota
	// Viewers are the clients of the account VIEWERS on an external server.
	Viewers

	both = Inside | Viewers
)

// Passage is a subject on which readers may send requests, or whose messages they may receive.
type Passage struct {
	of    Readers
	Asked string // the subject in the readers' account
	Taken string // the subject in weir's account
	// Several says that a request may have several answers. Heard says that the passage is not for requests: readers
	// receive the messages of the subject.
	Several, Heard bool
}

// Answers returns the server's value of response_type for the passage.
func (p Passage) Answers() string {
	if p.Several {
		return "stream"
	}
	return "singleton"
}

// read are the streams that viewers may read.
var read = []string{"WEIR_DEAD", "WEIR_RESULTS", "WEIR_CALLS", "WEIR_EVENTS", "KV_" + connect.ConfigBucket}

// Passages returns every subject on which readers may send to weir's account or hear it. The accounts of the embedded
// server and the files of deploy/nats are both made from this list: make rights writes the files.
func Passages(of Readers) []Passage {
	all := []Passage{
		{of: Inside, Asked: "weir.jobs.>"},
		{of: both, Asked: "weir.operator.keys.*", Several: true},
		{of: both, Asked: "weir.operator.show.*.*", Several: true},
		{of: Viewers, Asked: "weir.operator.status", Several: true},
		{of: Viewers, Asked: "weir.operator.find.*", Several: true},
		{of: Viewers, Asked: "weir.operator.jobs", Several: true},
		{of: Viewers, Asked: "weir.operator.ended"},
		{of: Viewers, Asked: "weir.operator.traces"},
		{of: Viewers, Asked: "weir.operator.spent"},
		{of: Viewers, Asked: "weir.operator.use.*"},
		{of: Inside, Asked: connect.Whereabouts},
		{of: both, Asked: "$SRV.PING", Several: true},
		{of: both, Asked: "$SRV.INFO", Several: true},
		{of: both, Asked: "$SRV.STATS", Several: true},
		{of: both, Asked: "$SRV.PING.>", Several: true},
		{of: both, Asked: "$SRV.INFO.>", Several: true},
		{of: both, Asked: "$SRV.STATS.>", Several: true},
		{of: both, Asked: "$JS.API.INFO"},
		{of: both, Asked: "$JS.API.STREAM.NAMES"},
		{of: both, Asked: "$JS.API.STREAM.LIST"},
		{of: both, Asked: "$JS.API.STREAM.INFO.*"},
		{of: Inside, Asked: "$JS.API.STREAM.MSG.GET.*"},
		{of: Inside, Asked: "$JS.API.DIRECT.GET.*"},
		{of: Inside, Asked: "$JS.API.DIRECT.GET.*.>"},
		{of: Inside, Asked: "$JS.API.CONSUMER.NAMES.*", Taken: Names + "*"},
		{of: Inside, Asked: "$JS.API.CONSUMER.LIST.*", Taken: List + "*"},
		{of: Inside, Asked: "$JS.API.CONSUMER.INFO.*.*"}, // only for names that the client knows
		{of: Inside, Asked: "$JS.API.CONSUMER.CREATE.>", Taken: Make + ">"},
		{of: Inside, Asked: "$JS.API.CONSUMER.DURABLE.CREATE.>", Taken: Durable + ">"},
		{of: Inside, Asked: "$JS.API.CONSUMER.DELETE.*.*", Taken: Drop + "*.*"},
		{of: Inside, Asked: "$JS.API.CONSUMER.MSG.NEXT.*.*", Several: true},
		{of: Inside, Asked: "$JS.ACK.>", Taken: Ack + ">"},
	}
	for _, question := range []struct {
		before, after, taken string
		streams              []string
	}{
		{before: "$JS.API.STREAM.MSG.GET."},
		{before: "$JS.API.DIRECT.GET."},
		{before: "$JS.API.DIRECT.GET.", after: ".>"},
		{before: "$JS.API.DIRECT.GET.", streams: []string{
			"KV_weir_control.$KV.weir_control.ledger",
			"KV_weir_control.$KV.weir_control.ledger.damage",
		}},
		{before: "$JS.API.CONSUMER.CREATE.", after: ".>", taken: Make},
		{before: "$JS.API.CONSUMER.INFO.", after: ".*"},
		{before: "$JS.API.CONSUMER.MSG.NEXT.", after: ".*", streams: read[:4]},
		{before: "$JS.API.CONSUMER.DELETE.", after: ".*", taken: Drop},
	} {
		if question.streams == nil {
			question.streams = read
		}
		for _, stream := range question.streams {
			p := Passage{of: Viewers, Asked: question.before + stream + question.after, Several: question.before == "$JS.API.CONSUMER.MSG.NEXT."}
			if question.taken != "" {
				p.Taken = question.taken + stream + question.after
			}
			all = append(all, p)
		}
	}
	all = append(all,
		Passage{of: both, Asked: "$JS.FC.>"}, // answers to flow control of consumers; each subject contains a number that the server chose
		Passage{of: both, Asked: "weir.events.>", Heard: true},
		Passage{of: Inside, Asked: "weir.results.>", Heard: true},
		Passage{of: Inside, Asked: "weir.dead.>", Heard: true},
		Passage{of: Inside, Asked: "weir.calls.>", Heard: true},
		Passage{of: Inside, Asked: ">", Taken: ReplyPrefix + ">", Heard: true},
		Passage{of: Viewers, Asked: "_INBOX.viewer.>", Taken: ReplyPrefix + "_INBOX.viewer.>", Heard: true},
	)
	all = slices.DeleteFunc(all, func(p Passage) bool { return p.of&of == 0 })
	for i := range all {
		if all[i].Taken == "" {
			all[i].Taken = all[i].Asked
		}
	}
	return all
}

// role is a role of users of weir's account on an external server.
type role struct {
	name      string
	why       string
	publish   []right
	subscribe []string
}

// right is a set of subjects to which a role may publish, for one purpose.
type right struct {
	why      string
	subjects []string
}

// roles returns the roles of weir's account with their rights there. The files of deploy/nats are made from them.
func roles() []role {
	may := func(why string, subjects ...string) right { return right{why, subjects} }
	consumers := may("", "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.CONSUMER.DELETE.*.*")
	return []role{
		{name: "producer", publish: []right{may("", "weir.jobs.>")}, subscribe: []string{"_INBOX.producer.>"}},
		{
			name: "worker", publish: []right{
				may("receipts, results to Weir-Reply-To, answers to operators", "_INBOX.>"),
				may("answers to other accounts: the server makes these subjects", "_R_.>"),
				may("the queues: jobs, intents, retry marks; epochs", "weir.q.>", "weir.o.>"),
				may("", "weir.dead.>", "weir.events.>", "weir.results.>", "weir.calls.>"),
				may("the jobs of letters, submitted again", "weir.operator.redrive.>"),
				may("", "$KV.weir_config.>", "$KV.weir_control.>", "$KV.weir_leases.>"),
				may("", "$JS.API.INFO", "$JS.API.STREAM.NAMES"),
				may("", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.PURGE.*"),
				may("", "$JS.API.STREAM.MSG.GET.*", "$JS.API.STREAM.MSG.DELETE.*", "$JS.API.DIRECT.GET.>"),
				consumers,
				may("flow control of the watched configuration", "$JS.FC.>"),
				may("its own rights, asked for at the start", "$SYS.REQ.USER.INFO"),
				may("how the servers sync, imported from SYS", connect.SyncRight),
				may("questions and commands over HTTP, as an operator, for the users of http.tokens", "weir.operator.>", "$SRV.>"),
			},
			subscribe: []string{"_INBOX.worker.>", "weir.jobs.>", "weir.operator.>", "weir.gate.>", "$SRV.>"},
		},
		{
			name: "operator", publish: []right{
				may("questions and commands: pause, resume, cancel, redrive", "weir.operator.>"),
				may("weir submit", "weir.jobs.>"),
				may("events: applied, paused, resumed,", "weir.events.config.>", "weir.events.held.>", "weir.events.resumed.>"),
				may("redrove, purged", "weir.events.redriven.>", "weir.events.purged.>"),
				may("imports letters", "weir.dead.>"),
				may("", "$KV.weir_config.>", "$KV.weir_control.>"),
				may("ends the lease of a replica that does not answer", "$KV.weir_leases.member.*"),
				may("", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*"),
				may("", "$JS.API.STREAM.CREATE.KV_weir_config", "$JS.API.STREAM.UPDATE.KV_weir_config"),
				may("", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>"),
				may("", "$JS.API.STREAM.MSG.DELETE.WEIR_DEAD", "$JS.API.STREAM.PURGE.WEIR_DEAD"),
				consumers,
				may("", "$JS.FC.>", "$SRV.>"),
				may("weir doctor: how the servers sync, imported from SYS", connect.SyncRight),
			},
			subscribe: []string{"_INBOX.operator.>", "weir.events.>"},
		},
		{
			name: "mover", why: "weir move, at both ends: remove the user when it is done", publish: []right{
				may("", "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*"),
				may("", "$JS.API.STREAM.SNAPSHOT.*", "$JS.API.STREAM.RESTORE.*", "$JS.SNAPSHOT.>", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.UPDATE.*"),
				may("", "$JS.API.STREAM.CREATE.KV_weir_move", "$JS.API.STREAM.MSG.GET.KV_weir_move"),
				may("", "$JS.API.STREAM.MSG.GET.KV_weir_config", "$KV.weir_move.>"),
				may("", "$JS.API.CONSUMER.CREATE.KV_weir_config.>", "$JS.API.CONSUMER.DELETE.KV_weir_config.*"),
				may("", "$JS.API.CONSUMER.CREATE.KV_weir_leases.>", "$JS.API.CONSUMER.DELETE.KV_weir_leases.*"),
				may("", "$JS.API.STREAM.MSG.GET.KV_weir_leases", "$KV.weir_leases.member.*"),
				may("", "$JS.FC.>", "$SRV.PING"),
			},
			subscribe: []string{"_INBOX.mover.>"},
		},
	}
}
