package ownership

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestDivideIsEven checks that every candidate gets the same share of every api, give or take one partition, and
// of many apis together within a fifth.
func TestDivideIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z0-9-]{1,12}"), 1, 6, rapid.ID).Draw(t, "names")
		apis, partitions := rapid.IntRange(20, 60).Draw(t, "apis"), rapid.IntRange(1, 16).Draw(t, "partitions")
		counts := make([]int, len(names))
		for a := range apis {
			of := make([]int, len(names))
			for p, owner := range divide(fmt.Sprintf("api-%d", a), partitions, names) {
				if owner < 0 {
					t.Fatalf("partition %d of api %d is nobody's", p, a)
				}
				of[owner]++
				counts[owner]++
			}
			for _, n := range of {
				if n < partitions/len(names) || n > (partitions+len(names)-1)/len(names) {
					t.Fatalf("%d of %d partitions for one of %d", n, partitions, len(names))
				}
			}
		}
		even := float64(apis*partitions) / float64(len(names))
		for i, n := range counts {
			if even >= 100 && (float64(n) < 0.8*even || float64(n) > 1.2*even) {
				t.Fatalf("%s has %d of %d partitions, even are %.0f", names[i], n, apis*partitions, even)
			}
		}
	})
}

// TestDivideMovesLittle checks that a replica that comes takes about its share, and hardly anything moves
// between the others.
func TestDivideMovesLittle(t *testing.T) {
	names := []string{"weir-0", "weir-1", "weir-2", "weir-3"}
	moved, toOthers, all := 0, 0, 0
	for a := range 200 {
		api := fmt.Sprintf("api-%d", a)
		before, after := divide(api, 8, names[:3]), divide(api, 8, names)
		for p := range before {
			all++
			if before[p] != after[p] {
				moved++
				if after[p] != 3 {
					toOthers++
				}
			}
		}
	}
	t.Logf("of %d partitions %d moved, %d of them between those that stayed", all, moved, toOthers)
	if moved > all/2 || toOthers > all/5 {
		t.Errorf("of %d partitions %d moved, %d of them between those that stayed", all, moved, toOthers)
	}
}
