package recorder

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// FuzzReader gives the reader arbitrary files: it must not crash, nor believe a call that was not noted.
func FuzzReader(f *testing.F) {
	r := open(f, f.TempDir(), small)
	for seq := range uint64(3) {
		e := r.Prepare(callOf(seq), Entry{})
		if seq > 0 {
			e.Begin(time.Now(), 1)
		}
		if seq == 2 {
			e.Answer(answerFor(1))
		}
	}
	whole := slices.Clone(r.data)
	noted := readEntries(whole, small, r.name)
	f.Add(whole[headerBytes:headerBytes+entryBytes*4], uint32(0))
	f.Add(whole[small.chunksFrom():small.chunksFrom()+chunkBytes*4], uint32(small.chunksFrom()))
	f.Add(binary.NativeEndian.AppendUint64(nil, magic), uint32(1))
	f.Fuzz(func(t *testing.T, piece []byte, at uint32) {
		data := slices.Clone(whole)
		copy(data[int(at)%len(data):], piece)
		if size, why := readHeader(r.file, data, r.name, r.boot); why == "" {
			for id, e := range readEntries(data, size, r.name) {
				w, ok := noted[id]
				if (e.state == Prepared || e.state == Answered) && (!ok || w.state != e.state || !slices.Equal(w.words, e.words)) {
					t.Errorf("call %d, which nobody noted so, is %d", id, e.state)
				}
			}
		}
		_, _ = readAnswer(piece)
	})
}
