package jsproxy

// ReplyPrefix begins the subjects of messages to readers in another account. The subject on which the readers receive
// the message follows.
const ReplyPrefix = "weir.reply."

// The subjects of a gate, in the account with the streams. Each is in place of the JetStream subject beside it, and is
// followed by the same tokens.
const (
	Prefix  = "weir.gate."
	Make    = Prefix + "make."    // $JS.API.CONSUMER.CREATE.
	Durable = Prefix + "durable." // $JS.API.CONSUMER.DURABLE.CREATE.
	Drop    = Prefix + "drop."    // $JS.API.CONSUMER.DELETE.
	List    = Prefix + "list."    // $JS.API.CONSUMER.LIST.
	Names   = Prefix + "names."   // $JS.API.CONSUMER.NAMES.
	Ack     = Prefix + "ack."     // $JS.ACK.
)

// queueGroup distributes requests among the gates of one server.
const queueGroup = "weir-gate"
