package judge

import "time"

// Letter is the part of a dead letter that is judged.
type Letter struct {
	Job, Reason, Detail string
	At                  Place     // the place in its queue; zero for a refused job
	Time                time.Time // when the job became this letter
	Seq                 uint64    // the letter's own sequence
}

// Ends says how jobs ended, according to weir's streams.
type Ends struct {
	Results map[string]int       // by job id
	Taken   map[string]time.Time // by job id: when the job was accepted, for jobs with a result or a letter
	Letters []Letter
	Calls   map[string]int       // by job id: how many calls a result reports
	Events  map[string]int       // throttled, by job id
	Answers map[string]AnswerOf  // by job id: the call whose answer the result has
	Reused  map[string]string    // by job id: another job whose answer the result has
	Stored  map[string]time.Time // by job id: when its result was stored
	Unread  []string             // streams that count messages which cannot be read
}

// AnswerOf names a call, by its number in the api's ledger, and the place of a job in the call.
type AnswerOf struct {
	Call  int64
	Place int
}

// Place is a job's place in its queue.
type Place struct {
	Stream string
	Seq    uint64
}
