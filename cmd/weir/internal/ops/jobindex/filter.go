package jobindex

// filter is a Bloom filter: it tells which hashes a block does not have. With the 2,048 hashes of a full block, about
// one in thirty other hashes is a false positive.
type filter [filterBits / 64]uint64

const (
	filterBits  = 1 << 14
	filterBytes = filterBits / 8
	bitShift    = 14 // by which a hash is shifted for each of its bits
	bitsSet     = 3
)

func (f *filter) add(hash uint64) {
	for range bitsSet {
		at := hash % filterBits
		f[at/64] |= 1 << (at % 64)
		hash >>= bitShift
	}
}

// has returns false only for a hash that was never added.
func (f *filter) has(hash uint64) bool {
	for range bitsSet {
		at := hash % filterBits
		if f[at/64]&(1<<(at%64)) == 0 {
			return false
		}
		hash >>= bitShift
	}
	return true
}
