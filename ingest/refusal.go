package ingest

import "fmt"

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Description: fmt.Sprintf(format, args...)}
}

// Answer is the intake's answer to a job: a receipt or a refusal.
type Answer struct {
	// Data is the answer that a producer on NATS gets. It is nil if the refusal's code is Unsure: the job may have been
	// stored, and the producer must send it again under the same id.
	Data    []byte
	Receipt Receipt  // if Refusal is nil
	Refusal *Refusal // with the job's id and the sequence of its letter
}

// denial returns the answer to a refused job.
func denial(r *Refusal, stream, job, key string, letterSeq uint64) Answer {
	told := *r
	told.Job, told.LetterSeq = job, letterSeq
	return Answer{Data: r.Answer(stream, job, key, letterSeq), Refusal: &told}
}
