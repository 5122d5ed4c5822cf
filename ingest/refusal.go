package ingest

import "fmt"

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Description: fmt.Sprintf(format, args...)}
}

// Answer is what the intake says of a job: a receipt, or a refusal.
type Answer struct {
	// Data is what a producer is told over NATS. It is nil where nobody knows whether the job was stored: then the refusal's code is
	// Unsure, and the job is to be sent again under the same id.
	Data    []byte
	Receipt Receipt  // where Refusal is nil
	Refusal *Refusal // with the job's id and the number of its letter
}

// denial is the answer to a job that is refused.
func denial(r *Refusal, stream, job, key string, letterSeq uint64) Answer {
	told := *r
	told.Job, told.LetterSeq = job, letterSeq
	return Answer{Data: r.Answer(stream, job, key, letterSeq), Refusal: &told}
}
