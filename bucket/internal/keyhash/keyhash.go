// Package keyhash replaces names by 128 bits of a seeded hash.
//
// Of a million names two share an ID with a chance of 10^-27. An ID costs the same whatever the name's length, and the
// garbage collector does not scan a table of them. Every process draws new seeds. So a producer that chooses names
// cannot make two of them collide, and no ID may be stored.
package keyhash

import "hash/maphash"

// ID stands for a name under the Seeds that made it.
type ID struct{ High, Low uint64 }

// Seeds make the IDs of one table. The zero value draws its seeds when it is first used; it is not safe for concurrent
// use.
type Seeds [2]maphash.Seed

// ID returns the name's identity under these seeds.
func (s *Seeds) ID(name string) ID {
	if *s == (Seeds{}) {
		*s = Seeds{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	return ID{maphash.String(s[0], name), maphash.String(s[1], name)}
}
