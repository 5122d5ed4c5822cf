package schedule

// census counts the jobs and the queues of a schedule.
type census struct {
	unfinished int    // jobs that have not ended
	early      int    // of the unfinished, jobs whose due times have not come
	kept       int    // queues without jobs, kept because they remember their key's state
	arrived    uint64 // jobs that came since the schedule began, except those found by a takeover
}

// came counts a job that came to a queue. A job found while its partition is read does not count as arrived.
func (c *census) came(q *KeyQueue) {
	c.unfinished++
	if !q.Partition.Reading {
		q.arrived++
		c.arrived++
	}
}

// keep counts a queue as kept without jobs if kept is true. Otherwise it stops counting the queue.
func (c *census) keep(q *KeyQueue, kept bool) {
	switch {
	case kept && !q.kept:
		c.kept++
	case !kept && q.kept:
		c.kept--
	}
	q.kept = kept
}
