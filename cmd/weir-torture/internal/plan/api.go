package plan

import "time"

// The callback of the api.
const (
	callbackRate     = 200 // posts a second of each type
	CallbackRefuses  = 10  // the receiver refuses one of this many posts
	CallbackVariable = "TORTURE_CALLBACK_SECRET"
	CallbackSecret   = "whsec_c3dvcmRmaXNoLXN3b3JkZmlzaC1zd29yZGZpc2g="
	CallbackAddress  = "TORTURE_CALLBACK_URL"

	PostsWithin = 45 * time.Second // the longest wait for the next post, at the end of a run
)

// NameHeader is the header in which a replica names itself.
const NameHeader = "X-Replica"

// The operations of the api. Each is polled twice: its first poll finds it running.
const (
	OperationPolls = 1           // polls that find an operation running
	OperationEvery = time.Second // between two polls of one operation
	operationsRate = 200         // polls per second
	OperationsPath = "/operations/"
	operationsYAML = `operation:
      poll: {path: "{answer-header:Location}", every: %s, rate: %d/s, for: 1h}
      answers:
        - {status: 200, json: /state, values: [done], means: done}
        - {status: 200, json: /state, values: [running], means: running}
      result: json:/output`
)

// PackWait is how long the first job of a pack waits for others of its key.
const PackWait = time.Second

// JobQuery is how the query of a job begins if the job's body does not name the job.
const JobQuery = "id="

// NameVariable is the variable with a replica's name, for a header of its calls.
const NameVariable = "TORTURE_REPLICA"

// Repeated requests: the jobs of a key ask for different things in turn, each with a query of its own.
const (
	askQuery   = "ask="
	asks       = 12
	ReusedFor  = 6 * time.Second
	RecallsFor = 2 * time.Second // after a start's first call; until then weir may not know all earlier answers
)

// The limit in tokens. Its burst is large enough for the highest estimate.
const (
	TokensName  = "tokens"
	TokensCount = 2700 // less than the usual load takes, so that jobs wait for the limit
	TokensPer   = 2 * time.Second
	tokensYAML  = "{name: tokens, rate: 2700/2s, burst: 400, cost: {from: header:Weir-Cost, settle: usage:total_tokens}}"

	misjudged = 5 // estimates are so many times too high, or too low
)

// settledYAML has the prices of the fake language model (fakeapi.InputPrice, fakeapi.OutputPrice).
const settledYAML = `vendor: openai
    price:
      - {each: 3, per: 1000000, from: header:X-Input, settle: usage:input_tokens}
      - {each: 15, per: 1000000, from: header:X-Output, settle: usage:output_tokens}`

// BudgetName is the budget whose use is compared with the ledger.
const BudgetName = "spend"

// The configuration of the api. An arrival that is late by less than the jitter is no breach: the jitter covers delays
// by the proxy and by a small machine.
const (
	APIName     = "pay"
	CallTimeout = 2 * time.Second
	Jitter      = 200 * time.Millisecond
	accountRate = 80 // calls per second over all keys, at least

	burstKey, burstRate, burstHolds = "burst", 5, 5
	slowKey                         = "slow"
	slowPer                         = 5 * time.Second
)

// The headers that may carry an idempotency key. The fake api reads both.
const (
	UsualKeyHeader = "Idempotency-Key"
	OtherKeyHeader = "X-Idempotency-Key"
)
