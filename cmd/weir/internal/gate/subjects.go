package gate

// ReplyPrefix begins the subjects that are told to readers of another account: what stands behind it is the subject that they hear it on.
const ReplyPrefix = "weir.reply."

// The subjects of a gate, in the account that has the streams. Behind each stands what JetStream's own subject ends in.
const (
	Prefix  = "weir.gate."
	Make    = Prefix + "make."    // $JS.API.CONSUMER.CREATE.
	Durable = Prefix + "durable." // $JS.API.CONSUMER.DURABLE.CREATE.
	Drop    = Prefix + "drop."    // $JS.API.CONSUMER.DELETE.
	List    = Prefix + "list."    // $JS.API.CONSUMER.LIST.
	Names   = Prefix + "names."   // $JS.API.CONSUMER.NAMES.
	Ack     = Prefix + "ack."     // $JS.ACK.
)

// queueGroup shares what is asked among the gates of one server.
const queueGroup = "weir-gate"
