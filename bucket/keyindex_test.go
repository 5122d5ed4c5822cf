package bucket

import (
	"testing"

	"pgregory.net/rapid"
)

// TestKeyIndexIsAMap plays the same to the index and to a map, with hashes that meet often and parts that grow and shrink.
func TestKeyIndexIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x keyIndex
		hashes := map[uint32]uint64{} // by place
		hash := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 1).Draw(t, "part")<<56 | rapid.Uint64Range(0, 40).Draw(t, "tag")
		})
		next := uint32(0)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			places := make([]uint32, 0, len(hashes))
			for p := range next {
				if _, ok := hashes[p]; ok {
					places = append(places, p)
				}
			}
			switch do := rapid.IntRange(0, 5).Draw(t, "do"); {
			case do < 3 || len(places) == 0:
				h := hash.Draw(t, "hash")
				x.put(h, next)
				hashes[next] = h
				next++
			case do == 3:
				p := rapid.SampledFrom(places).Draw(t, "moved")
				x.move(hashes[p], p, next)
				hashes[next] = hashes[p]
				delete(hashes, p)
				next++
			default:
				p := rapid.SampledFrom(places).Draw(t, "removed")
				x.remove(hashes[p], p)
				delete(hashes, p)
			}
			for p, h := range hashes {
				if got, ok := x.find(h, func(i uint32) bool { return i == p }); !ok || got != p {
					t.Fatalf("place %d of hash %x is not found", p, h)
				}
			}
			h := hash.Draw(t, "looked for")
			x.find(h, func(p uint32) bool {
				if got, ok := hashes[p]; !ok || uint32(got) != uint32(h) || got>>56 != h>>56 {
					t.Fatalf("place %d was offered for hash %x, its is %x (%v)", p, h, got, ok)
				}
				return false
			})
		}
	})
}

// TestKeysComeAndGo: more keys than ever fit in one block, told apart, forgotten and known again.
func TestKeysComeAndGo(t *testing.T) {
	var table keyTable
	name := func(i int) string { return string(rune('a'+i%26)) + string(rune(1000+i)) }
	for round := range 3 {
		now := Micros(round+1) * 1_000_000
		for i := range 5000 {
			s, place := table.open(name(i), now, 0)
			if before := now - 1_000_000 + 500_000 + Micros(i); s.tat != 0 && s.tat != before {
				t.Fatalf("round %d: key %d has the debt of another: %d", round, i, s.tat)
			}
			s.tat, s.last, s.pace.interval = now+500_000+Micros(i), int64(i), Interval{int64(i%7 + 1), 1}
			table.store(place, &s)
		}
		for i := range 5000 {
			if s, ok := table.find(name(i)); !ok || s.tat != now+500_000+Micros(i) || s.last != int64(i) || s.pace.interval.P != int64(i%7+1) {
				t.Fatalf("round %d: key %d is %+v, %v", round, i, s, ok)
			}
		}
	}
	for range 12_000 {
		table.evict(maxMicros)
	}
	if table.n != 0 || len(table.paces.numbers) != 0 {
		t.Errorf("%d keys and %d paces are left", table.n, len(table.paces.numbers))
	}
}
