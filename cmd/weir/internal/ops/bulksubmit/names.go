package bulksubmit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/ingest"
)

// maxNamed bounds how many different lines without an id a file may have. Each takes some 50 bytes of memory.
const maxNamed = 2_000_000

// names counts equal lines without an id, by the digest of their content.
type names map[[16]byte]uint32

// of returns an id for a job without one: it is made of the job's content and the number of equal jobs before it. The
// line's number is no part of the id, so a line that is inserted above leaves the id unchanged.
func (n names) of(job *ingest.Submission) (string, error) {
	said := digest(job)
	count := n[said]
	if count == 0 && len(n) >= maxNamed {
		return "", fmt.Errorf("it has no id, like %d lines before it: give every line an id, or split the file", maxNamed)
	}
	n[said] = count + 1
	name := "line-" + hex.EncodeToString(said[:])
	if count > 0 {
		name += "-" + strconv.FormatUint(uint64(count)+1, 10)
	}
	return name, nil
}

// digest hashes the content of a job without its priority, because the same file with another priority has the same
// jobs.
func digest(job *ingest.Submission) [16]byte {
	h := sha256.New()
	write := func(text string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	deadline := ""
	if !job.Deadline.IsZero() {
		deadline = job.Deadline.UTC().Format(time.RFC3339Nano)
	}
	for _, text := range []string{
		job.API, job.Key, job.Method, job.Path, job.Query, job.ReplyTo, deadline, job.Within.String(),
		strconv.FormatInt(job.Cost, 10), job.JobHeader.Get(ingest.HeaderNotBefore), string(job.Body),
	} {
		write(text)
	}
	header := slices.Clone(job.Header)
	slices.SortStableFunc(header, func(a, b ingest.HeaderField) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range header {
		write(f.Name)
		write(f.Value)
	}
	return [16]byte(h.Sum(nil))
}

// identity identifies a job in the journal. The same id under two keys belongs to two jobs.
func identity(job *ingest.Submission) [16]byte {
	h := sha256.New()
	for _, text := range []string{job.API, job.Key, job.ID} {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	return [16]byte(h.Sum(nil))
}
