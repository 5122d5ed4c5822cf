package ownership

import (
	"container/heap"
	"strconv"
)

// divide gives every partition of an api to one of the candidates. It returns the candidate's index for each partition,
// nil if there are no candidates. Every replica that knows the same candidates gets the same result.
//
// Each pair of partition and candidate has a score, and the highest scores win (rendezvous hashing), as long as no
// candidate gets more than the even share. So every api's load is even, even if the api has few partitions. A candidate
// that comes or goes moves few partitions besides its own. Replicas of different versions must divide alike.
func divide(api string, partitions int, candidates []string) []int {
	if len(candidates) == 0 {
		return nil
	}
	owners, counts := make([]int, partitions), make([]int, len(candidates))
	least, more := partitions/len(candidates), partitions%len(candidates) // more: candidates that get one beyond least
	full := func(c int) bool { return counts[c] > least || counts[c] == least && more == 0 }
	scores := make([]uint64, partitions*len(candidates))
	// best returns the candidate with the highest score for a partition, of those that are not full.
	best := func(p int) bid {
		b := bid{partition: p, candidate: -1}
		for c, score := range scores[p*len(candidates) : (p+1)*len(candidates)] {
			if (b.candidate < 0 || score > b.score) && !full(c) {
				b.score, b.candidate = score, c
			}
		}
		return b
	}
	open := make(bids, partitions)
	for p := range partitions {
		scoreAll(scores[p*len(candidates):(p+1)*len(candidates)], api, p, candidates)
		open[p] = best(p)
	}
	for heap.Init(&open); len(open) > 0; {
		b := open[0]
		if full(b.candidate) {
			open[0] = best(b.partition)
			heap.Fix(&open, 0)
			continue
		}
		if counts[b.candidate] == least {
			more--
		}
		owners[b.partition] = b.candidate
		counts[b.candidate]++
		heap.Pop(&open)
	}
	return owners
}

// bid is the highest score that a partition has with a candidate that is not full.
type bid struct {
	score                uint64
	partition, candidate int
}

// bids is a heap with the highest bid on top.
type bids []bid

func (b bids) Len() int      { return len(b) }
func (b bids) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b bids) Less(i, j int) bool {
	return b[i].score > b[j].score || b[i].score == b[j].score && b[i].partition < b[j].partition
}

// Push implements heap.Interface.
func (b *bids) Push(x any) { *b = append(*b, x.(bid)) }

// Pop implements heap.Interface.
func (b *bids) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// scoreAll stores each candidate's score for a partition. It hashes the partition only once, with FNV-1a.
func scoreAll(scores []uint64, api string, partition int, candidates []string) {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := func(h uint64, s string) uint64 {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
		return h
	}
	common := hash(offset, api+"\x00"+strconv.Itoa(partition)+"\x00")
	for i, candidate := range candidates {
		x := hash(common, candidate)
		x ^= x >> 30 // FNV hardly mixes its last bytes: splitmix64's finalizer does
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 27
		x *= 0x94d049bb133111eb
		scores[i] = x ^ x>>31
	}
}
