package ingest

import "strconv"

// RedriveID is the message id under which a job is published when it is redriven for the n-th time: another submission
// of the same job, which keeps its Weir-Job-Id, and with it its idempotency key. The job says n in Weir-Redrives.
func RedriveID(job string, n int) string { return job + ".r" + strconv.Itoa(n) }

// maxRedriveIDBytes bounds a message id of a redrive, of a job whose id is as long as it may be.
const maxRedriveIDBytes = MaxIDBytes + len(".r2147483647")

// redriveMark begins the dedupe id of a redrive. An id holds no blank: a producer's own job that is called x.r1 is not
// the first redrive of the job x.
const redriveMark = " "

// isRedrive reports whether the job was published as a redrive, and not by a producer of its own.
func (j *Job) isRedrive(msgID string) bool {
	return j.Redrives > 0 && j.ID != "" && msgID == RedriveID(j.ID, j.Redrives)
}
