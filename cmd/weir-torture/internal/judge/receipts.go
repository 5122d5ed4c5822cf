package judge

import (
	"time"

	"weir/bucket"
)

// Receipt is the answer to a producer about one job, as the producer recorded it.
type Receipt struct {
	ID       string          `json:"id"`
	Key      string          `json:"key"`
	Priority bucket.Priority `json:"priority,omitempty"`
	Ask      string          `json:"ask,omitempty"` // the job's query
	Stream   string          `json:"stream"`
	Seq      uint64          `json:"seq"`
	Code     int             `json:"code,omitempty"` // 0: accepted
	Letter   uint64          `json:"letter,omitempty"`
	Tries    int             `json:"tries"`

	At     time.Time     `json:"at"`        // when the answer came
	Waited time.Duration `json:"waited_ns"` // since the job was first sent
}

// Trouble is a failed try of a producer, which then tries again.
type Trouble struct {
	At   time.Time
	What string
}
