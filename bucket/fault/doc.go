// Package fault lets a test end weir at a chosen point, and switch on a bug that the test's checks must catch.
//
// It imports no other package of weir, so that every package that writes something durable can use it: bucket,
// deadletter, dispatcher and cmd have such points. Each point is one line between two durable steps:
//
//	fault.Pass(fault.ResultStored) // the result is stored, its record in the ledger is not
//
// In an ordinary build Pass is an empty function and Planted is false: the compiler removes the calls, the names of the
// points and the code of a planted bug, and nothing in the environment can bring them back. Only a build with the tag
// torture reads an Order from the environment. `weir-torture` gives one to the processes it starts.
package fault

// Point is a place between two durable steps.
type Point string

// The points, in the order in which a job passes them. Most comments say what has not been done yet.
const (
	JobStored    Point = "job-stored"    // its receipt is not sent
	RefusalNext  Point = "refusal-next"  // a job is refused, its letter not stored
	LetterStored Point = "letter-stored" // its event is not
	EventStored  Point = "event-stored"  // its notice is not sent

	LeaseStored  Point = "lease-stored"  // the epoch is not
	EpochDropped Point = "epoch-dropped" // the earlier owner's is gone, the new one's not stored
	EpochStored  Point = "epoch-stored"  // nothing of the partition is read
	UnknownFound Point = "unknown-found" // at the start: an intent without an outcome, nothing stored about it

	IntentStored Point = "intent-stored" // the call's slot is not asked for
	CallNext     Point = "call-next"     // its slot is granted, nothing is sent
	CallSent     Point = "call-sent"     // there is no answer
	CallAnswered Point = "call-answered" // nothing is stored about it
	ResultStored Point = "result-stored" // the ledger's record is not
	RecordStored Point = "record-stored" // the letter or the retry mark is not, or the job not deleted
	RetryStored  Point = "retry-stored"  // the mark before is not deleted
	LetterKept   Point = "letter-kept"   // letter, event and notice are out, the job is not deleted
	DeleteNext   Point = "delete-next"   // finished jobs are not deleted
	Deleted      Point = "deleted"       // finished jobs are deleted, and the owner has not noted it

	AnswerFound Point = "answer-found" // at the start: a call that was answered, nothing stored about it

	LimitsStored Point = "limits-stored" // the checkpoint of shared limits is stored, and the owner has not noted it
)

// Bug is a mistake that can be planted.
type Bug string

// The bugs: each breaks one promise, and `weir-torture` must see it.
const (
	DeleteFirst Bug = "delete-first" // a job is deleted before its result is stored
	NoIntent    Bug = "no-intent"    // a call starts without a stored intent
	NoFence     Bug = "no-fence"     // a replaced owner continues: it ignores its lease, and its intents are accepted
	NoDedupe    Bug = "no-dedupe"    // the same id twice is two jobs
	LimiterOpen Bug = "limiter-open" // the limiter counts unknown use as unused
	LossUnseen  Bug = "loss-unseen"  // a Redis that is empty, or older than weir knows, counts as whole
	AnswerFirst Bug = "answer-first" // a refused producer gets its 429 before its letter is stored

	RecordLate  Bug = "record-late"  // the beginning of a call is noted when the call has ended
	RecordMixed Bug = "record-mixed" // a call is given another call's answer
	StaleBoot   Bug = "stale-boot"   // notes from before the machine was restarted are trusted
)

// Order tells a process what to do. The zero value orders nothing.
type Order struct {
	Point Point // where the process ends, as if by kill -9
	Nth   int   // at which pass of the point the process ends, from 1
	Bug   Bug   // Bug to switch on
}
