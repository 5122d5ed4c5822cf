package ingest

import "fmt"

// queuePrefix begins the names of the streams that keep jobs, and so of those that a receipt names.
const queuePrefix = "WEIR_"

// ForeignAnswer is an error: a stream that takes weir's subjects has answered a job before weir, if a weir runs there at all. Its
// acknowledgement is no receipt, and weir's own answer came too late to be heard. Nobody knows whether weir took the job.
type ForeignAnswer struct {
	Stream  string // that answered; empty where it does not say
	Refused string // what the stream said where it refused the job; empty: it acknowledged it
}

func (f *ForeignAnswer) Error() string {
	who := "something that is not weir"
	if f.Stream != "" {
		who = "stream " + clip(f.Stream)
	}
	what := "acknowledged the job"
	if f.Refused != "" {
		what = "refused the job (" + f.Refused + ")"
	}
	return fmt.Sprintf("%s %s in weir's place: it must not take %s>", who, what, SubjectPrefix)
}

// ourCode reports whether an answer's error code is one of weir's. JetStream's own are all below them.
func ourCode(code int) bool {
	switch Code(code) {
	case Invalid, UnknownAPI, TooLarge, Throttled, Unavailable:
		return true
	case Unsure:
	}
	return false
}
