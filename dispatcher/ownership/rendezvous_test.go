package ownership

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
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

// TestDivideByItsRule checks that divide gives each partition to the same candidate as the plain form of its rule.
// Candidates of the same name have equal scores.
func TestDivideByItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{3, 20, 120}).Draw(t, "most")
		names := rapid.SliceOfN(rapid.OneOf(rapid.StringMatching("[a-c]"), rapid.String()), 0, most).Draw(t, "names")
		api, partitions := rapid.String().Draw(t, "api"), rapid.IntRange(0, 256).Draw(t, "partitions")
		if got, want := divide(api, partitions, names), dividePlainly(api, partitions, names); !slices.Equal(got, want) {
			t.Fatalf("divide: %v, the plain form of its rule: %v", got, want)
		}
	})
}

// TestDivideStaysAsItIs checks one division against the one that divide made before it was made faster. If it changed,
// replicas of two versions would not divide alike during an upgrade.
func TestDivideStaysAsItIs(t *testing.T) {
	names := []string{"weir-0", "weir-1", "weir-2"}
	want := []int{1, 1, 1, 2, 0, 1, 0, 2, 2, 1, 2, 0, 0, 1, 0, 2}
	if got := divide("credit-check", 16, names); !slices.Equal(got, want) {
		t.Errorf("credit-check is divided as %v, not as %v", got, want)
	}
}

// dividePlainly sorts all pairs of partition and candidate by score, and takes one after the other.
func dividePlainly(api string, partitions int, candidates []string) []int {
	type pair struct {
		score                uint64
		partition, candidate int
	}
	var pairs []pair
	for p := range partitions {
		for c, name := range candidates {
			pairs = append(pairs, pair{scorePlainly(api, p, name), p, c})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.partition, b.partition), cmp.Compare(a.candidate, b.candidate))
	})
	if len(candidates) == 0 {
		return nil
	}
	owners, counts := make([]int, partitions), make([]int, len(candidates))
	for p := range owners {
		owners[p] = -1
	}
	least, more := partitions/len(candidates), partitions%len(candidates)
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

// BenchmarkDivide measures divide beside the plain form of its rule, for 250 partitions and 100 candidates.
func BenchmarkDivide(b *testing.B) {
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("weir-%d", i)
	}
	for name, by := range map[string]func(string, int, []string) []int{"divide": divide, "plainly": dividePlainly} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				by("api", 250, names)
			}
		})
	}
}

func scorePlainly(api string, partition int, candidate string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(api + "\x00" + strconv.Itoa(partition) + "\x00" + candidate)) // a hash never fails
	x := h.Sum64()
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
