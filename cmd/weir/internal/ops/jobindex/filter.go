package jobindex

// filter is a Bloom filter: it tells which hashes a block cannot have. In a full block, with 2,048 hashes, has returns
// true for about one in thirty hashes that were not added.
type filter [filterBits / 64]uint64

const (
	filterBits  = 1 << 14
	filterBytes = filterBits / 8
	bitShift    = 14 // by how many bits a hash is shifted for each bit of the filter
	bitsSet     = 3
)

func (f *filter) add(hash uint64) {
	for range bitsSet {
		at := hash % filterBits
		f[at/64] |= 1 << (at % 64)
		hash >>= bitShift
	}
}

// has returns true for every hash that was added. For other hashes it rarely returns true.
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
