package recovery

// Open describes a job with a lost call: the call may have been made, and nothing that is stored says what came of it.
type Open struct {
	Keyed     bool // the call carried an idempotency key
	Same      bool // the api would take another call of the job for the same one
	Poisonous bool // so many processes in a row have died over the job that it must not be called again
}

// Remedy is what recovery does about an open job.
type Remedy int

// The remedies.
const (
	Parks   Remedy = iota // it becomes a letter unknown
	Repeats               // it is called again, under the same idempotency key
	GivesUp               // it becomes a letter exhausted
)

// Mend decides what recovery does about an open job. The caller must not write a letter before it is certain that no
// result of the job can be stored any more.
func Mend(o Open) Remedy {
	switch {
	case o.Same && o.Keyed && !o.Poisonous:
		return Repeats
	case o.Poisonous && o.Keyed:
		return GivesUp
	}
	return Parks
}
