package jsproxy

// ReplyPrefix begins the subjects of messages to readers of another account: it is followed by the subject on which
// they receive them.
const ReplyPrefix = "weir.reply."

// The subjects of a gate, in the account that has the streams. Each is followed by the end of JetStream's own subject.
const (
	Prefix  = "weir.gate."
	Make    = Prefix + "make."    // $JS.API.CONSUMER.CREATE.
	Durable = Prefix + "durable." // $JS.API.CONSUMER.DURABLE.CREATE.
	Drop    = Prefix + "drop."    // $JS.API.CONSUMER.DELETE.
	List    = Prefix + "list."    // $JS.API.CONSUMER.LIST.
	Names   = Prefix + "names."   // $JS.API.CONSUMER.NAMES.
	Ack     = Prefix + "ack."     // $JS.ACK.
)

// queueGroup distributes questions among the gates of one server.
const queueGroup = "weir-gate"
