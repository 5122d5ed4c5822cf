package bucket

import "testing"

// TestKeysComeAndGo checks that a table with more keys than fit into one block distinguishes them, forgets them and
// takes them up again.
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
			s.tat, s.last, s.interval = now+500_000+Micros(i), int64(i), Interval{int64(i%7 + 1), 1}
			table.store(place, &s)
		}
		for i := range 5000 {
			if s, ok := table.find(name(i)); !ok || s.tat != now+500_000+Micros(i) || s.last != int64(i) || s.interval.P != int64(i%7+1) {
				t.Fatalf("round %d: key %d is %+v, %v", round, i, s, ok)
			}
		}
	}
	for range 12_000 {
		table.evict(maxMicros)
	}
	if table.n != 0 || len(table.index) != 0 || len(table.paces.numbers) != 0 {
		t.Errorf("%d keys, %d places and %d paces are left", table.n, len(table.index), len(table.paces.numbers))
	}
}
