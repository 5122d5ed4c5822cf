package lane

// Bill is what a job's last call took: money, and units of the limits that keys share. If another process made the
// call, or its answer has not come, it holds what the call was estimated to take.
type Bill struct {
	Reserved  int64            // estimated price of the next call, in millionths, not lowered by learned percentiles
	Estimates []int64          // units of each shared limit by the job's own estimates; nil if answers report no units
	Paid      int64            // price of the last call, estimated unless the answer reported it
	Noted     bool             // another process noted what the lost call took
	Taken     []int64          // units the last call took from each shared limit, estimated as Paid is
	Usage     map[string]int64 // numbers of the last call's answer that the usage counts
	Unsettled []string         // limits whose units the answer should have reported, and did not
}

// Over returns the units that the last call had reserved if the call took more of some limit. Otherwise it returns nil.
func (b *Bill) Over(reserved []int64) []int64 {
	for i := range min(len(reserved), len(b.Taken)) {
		if b.Taken[i] > reserved[i] {
			return reserved
		}
	}
	return nil
}

// Low returns the job's own estimates of the units of each shared limit if the last call took more of some limit.
// Otherwise it returns nil.
func (b *Bill) Low() []int64 {
	for i := range min(len(b.Estimates), len(b.Taken)) {
		if b.Taken[i] > b.Estimates[i] {
			return b.Estimates
		}
	}
	return nil
}

// Charged returns the units that the last call took from each shared limit. If another process made the call, these are
// the units that it reserved, unless more is known.
func (b *Bill) Charged(reserved []int64) []int64 {
	if b.Taken == nil {
		return reserved
	}
	return b.Taken
}
