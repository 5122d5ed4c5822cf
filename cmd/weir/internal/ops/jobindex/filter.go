package jobindex

// filter tells which hashes a block of entries does not have. With the 2,048 hashes of a full block it errs for one of
// thirty others.
type filter [filterBits / 64]uint64

const (
	filterBits  = 1 << 14
	filterBytes = filterBits / 8
	bitShift    = 14 // of a hash for each of its bits
	bitsSet     = 3
)

func (f *filter) add(hash uint64) {
	for range bitsSet {
		at := hash % filterBits
		f[at/64] |= 1 << (at % 64)
		hash >>= bitShift
	}
}

// has reports false only for a hash that was never added.
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
