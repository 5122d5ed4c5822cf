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

// maxNamed bounds how many lines without an id get a name. Each takes some 50 bytes of memory.
const maxNamed = 2_000_000

// names are how many lines were named after what they say, by that.
type names map[[16]byte]uint32

// of names a job that has no id: by what it says, and by how many before it say the same. Its place in the file does not count,
// so a line that is put in above it does not make it another job.
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

// digest is what a job says, in sixteen bytes, without its priority: the same file with another one is the same jobs.
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

// identity is whose job a line is: the same id under two keys is two jobs.
func identity(job *ingest.Submission) [16]byte {
	h := sha256.New()
	for _, text := range []string{job.API, job.Key, job.ID} {
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
	return [16]byte(h.Sum(nil))
}
