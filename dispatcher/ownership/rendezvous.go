package ownership

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// divide gives every partition of an api to one of the candidates. It returns the candidate's index for each partition,
// nil if there are no candidates. Every replica that knows the same candidates gets the same result.
//
// Each pair of partition and candidate has a score, and the highest scores win (rendezvous hashing), as long as no
// candidate gets more than the even share. So every api's load is even, even if the api has few partitions. A candidate
// that comes or goes moves few partitions besides its own.
func divide(api string, partitions int, candidates []string) []int {
	if len(candidates) == 0 {
		return nil
	}
	type pair struct {
		score                uint64
		partition, candidate int
	}
	pairs := make([]pair, 0, partitions*len(candidates))
	for p := range partitions {
		for c, name := range candidates {
			pairs = append(pairs, pair{score(api, p, name), p, c})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.partition, b.partition), cmp.Compare(a.candidate, b.candidate))
	})
	owners, counts := make([]int, partitions), make([]int, len(candidates))
	for p := range owners {
		owners[p] = -1
	}
	least, more := partitions/len(candidates), partitions%len(candidates) // more: candidates that get one beyond least
	for _, x := range pairs {
		if owners[x.partition] >= 0 || counts[x.candidate] > least || counts[x.candidate] == least && more == 0 {
			continue
		}
		if counts[x.candidate] == least {
			more--
		}
		owners[x.partition] = x.candidate
		counts[x.candidate]++
	}
	return owners
}

func score(api string, partition int, candidate string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(api + "\x00" + strconv.Itoa(partition) + "\x00" + candidate)) // a hash never fails
	x := h.Sum64()
	x ^= x >> 30 // FNV hardly mixes its last bytes: splitmix64's finalizer does
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
