package recorder

import "encoding/binary"

// The file, version 3, in words of eight bytes in this machine's byte order:
//
//	a page     the header
//	entries    of entryWords each
//	chunks     of chunkBytes each
//
// This version ignores files with another version number.
const (
	magic   = 0x7265636f72643031 // "record01"
	version = 4

	headerBytes = 4096
	entryWords  = 24
	entryBytes  = entryWords * 8
	chunkBytes  = 4096
	mostChunks  = 17 // chunks of one answer: 64 KiB of body, and its other fields
)

// The words of the header.
const (
	headMagic = iota
	headVersion
	headEntries
	headChunks
	headName // name of the process's life, and part of the file's name
	headDevice
	headInode
	headBorn // when the file was made
	headPID
	headStarted                // when the process made the file, in nanoseconds since 1970
	headBoot                   // 36 letters
	headSum     = headBoot + 5 // sum over all words before it
	headLedger  = headSum + 1  // the ledger mark, with a sum of its own; 0 while no ledger is known
)

// The words of an entry.
const (
	wordState = iota // a sum over all other words and the state
	wordID
	wordStream
	wordStream2
	wordSeq
	wordAccepted
	wordNumber
	wordEpoch
	wordKeySum
	wordBegun // when the call began, in microseconds
	wordTAT
	wordAnswer // the answer's length, and its sum
	wordChunks // five words, for the numbers of mostChunks chunks
	_
	_
	_
	_
	wordsUsed
)

// State says how far a call has come, according to its entry.
type State int8

// The states. Untold stands for an entry that is not whole, or that belongs to another call.
const (
	Untold   State = iota
	Prepared       // the call has not begun
	Begun          // the call's first byte may have left
	Left           // the call's first bytes have left
	Answered       // the call has ended
	Settled        // the call's outcome is stored
)

// tags make an entry's sum differ between its states.
var tags = [...]uint64{Untold: 0, Prepared: 0x9ae16a3b2f90404f, Begun: 0xc3a5c85c97cb3127, Left: 0xb492b66fbe98f273, Answered: 0x2545f4914f6cdd1d, Settled: 0xff51afd7ed558ccd}

// sumOf returns the first word of an entry in state s: a sum over the other words. Every step of it is one to one, so
// two entries that differ in a single word have different sums.
func sumOf(entry []uint64, name uint64, s State) uint64 {
	sum := name ^ tags[s]
	for _, word := range entry[1:entryWords] {
		sum = (sum ^ word) * 0x9e3779b97f4a7c15
		sum ^= sum >> 32
	}
	if sum == 0 {
		return 1 // 0 stands for an entry that is being written
	}
	return sum
}

// stateOf returns the state that matches an entry's sum, Untold if none does.
func stateOf(entry []uint64, name uint64) State {
	if entry[wordState] == 0 {
		return Untold
	}
	for s := Prepared; s <= Settled; s++ {
		if entry[wordState] == sumOf(entry, name, s) {
			return s
		}
	}
	return Untold
}

// headSumOf returns the header's sum.
func headSumOf(head []uint64) uint64 {
	sum := uint64(magic)
	for _, word := range head[:headSum] {
		sum = (sum ^ word) * 0x9e3779b97f4a7c15
		sum ^= sum >> 32
	}
	return sum
}

// chunksAt returns the number of an entry's i-th chunk.
func chunksAt(entry []uint64, i int) uint16 { return uint16(entry[wordChunks+i/4] >> (16 * (i % 4))) }

// wordsOf converts bytes to words.
func wordsOf(b []byte) []uint64 {
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(b[i*8:])
	}
	return words
}

// Size says for how much a file has room.
type Size struct {
	Entries int // calls that are prepared, under way, or not settled; at most 1<<20
	Chunks  int // chunks of 4 KiB, for answers that are not settled; at most 1<<16
}

// Usual is the size of a dispatcher's file: 10 MiB. The dispatcher touches only as much of it as it uses.
var Usual = Size{Entries: 8192, Chunks: 2048}

func (s Size) chunksFrom() int64 { return headerBytes + int64(s.Entries)*entryBytes }

// bytes returns the size of the file.
func (s Size) bytes() int64 { return s.chunksFrom() + int64(s.Chunks)*chunkBytes }
