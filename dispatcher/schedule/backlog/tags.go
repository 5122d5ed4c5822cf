package backlog

import "weir/bucket"

// Within a key, priorities share the calls by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Each
// waiting job has a tag: the key's virtual time at which its call is due. The tags of two successive jobs of a priority
// differ by one call divided by the priority's weight. The job with the least tag is next. If two tags are equal, the
// more urgent job is next. A priority that had no job continues at the key's virtual time, and gets no credit for
// having been away.
//
// Only the first tag of each priority is kept: the i-th job behind the first one has a tag that is i such distances
// later. So the schedule computes a job's place without looking at the other jobs. The tags are not stored: after a
// restart they begin again. This changes the order between priorities by at most one call of each, and never the order
// within one.
//
// A limit that keys share decides between priorities over all keys (package turns). The tags of a key then only follow:
// no priority gains credit at the key while it waits for its turn at the limit. But if the key's own limits let only
// one call go at a time, each turn of the key goes to the job that its tags choose.

// Tag is a time in the virtual time of a key. The tag of a job is 0 while its key has only normal jobs.
type Tag int64

// wholeTag is how far a call of weight 1 advances the virtual time. Weights that divide it are exact; other weights are
// off by at most 1 in 2,000.
const wholeTag Tag = 1 << 20

// classes holds a key's waiting jobs of other priorities than Normal, and the tags of all priorities. Normal jobs
// always wait in Backlog.normal.
type classes struct {
	now Tag // the virtual time: the largest tag of a job that was taken
	of  [len(bucket.Priorities)]class
}

// class holds a key's jobs of one priority.
type class struct {
	waits List // not used for Normal
	next  Tag  // tag of the first waiting job; if none waits, the least tag that the next job may get
	step  Tag  // from one job to the next
}

// newClasses returns the classes of a key that has only normal jobs. Its waiting jobs get tags from the virtual time 1
// on, so they come after its jobs that are near their calls and have the tag 0.
func newClasses(w bucket.Weights) *classes {
	c := &classes{now: 1}
	for i := range c.of {
		c.of[i].next = c.now
	}
	c.weigh(w)
	return c
}

// weigh sets the distance between the tags of each priority by its weight. The tag of each priority's first waiting job
// stays.
func (c *classes) weigh(w bucket.Weights) {
	for _, p := range bucket.Priorities {
		weight := Tag(w.Of(p))
		c.class(p).step = (wholeTag + weight/2) / weight
	}
}

func (c *classes) class(p bucket.Priority) *class { return &c.of[p-bucket.High] }

// took notes that a priority's first waiting job is taken now, and advances the virtual time to the job's tag.
func (c *classes) took(p bucket.Priority) {
	t := c.class(p).next
	c.follow(p)
	c.reach(t)
}

// follow notes that a priority's first waiting job is taken ahead of its turn. The jobs behind it get the next tags.
// The virtual time stays, because turns of other priorities come before that job's turn.
func (c *classes) follow(p bucket.Priority) {
	of := c.class(p)
	of.next += of.step
}

// reach advances the virtual time to t, the tag of a job that was taken earlier and is made ready now.
func (c *classes) reach(t Tag) {
	c.now = max(c.now, t)
	for i := range c.of {
		c.of[i].next = max(c.of[i].next, c.now)
	}
}

// forgone gives a priority its turn back, because a job that was taken for it ends without a call.
func (c *classes) forgone(p bucket.Priority) {
	of := c.class(p)
	of.next = max(c.now, of.next-of.step)
}

// sooner reports whether the next job of one priority comes before the next of another.
func (c *classes) sooner(p, other bucket.Priority) bool {
	a, b := c.class(p).next, c.class(other).next
	return a < b || a == b && p < other
}

// before returns how many of the n waiting jobs of priority p come before a job of priority other with tag t.
func (c *classes) before(p bucket.Priority, n int, other bucket.Priority, t Tag) int {
	of := c.class(p)
	if p < other {
		t++ // a more urgent priority comes first among equal tags
	}
	if t <= of.next {
		return 0
	}
	return int(min(Tag(n), (t-of.next+of.step-1)/of.step))
}
