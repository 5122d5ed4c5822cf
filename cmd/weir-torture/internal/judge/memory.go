package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// memoryMargin returns how far the resident maximum may exceed the limit, in MiB. weir cannot count its program and the
// mapped files of the store.
func memoryMargin(limit int) int { return 48 + limit/4 }

// MemoryLife is one life of weir under a memory limit.
type MemoryLife struct {
	Limit int  `json:"limit_mib"`
	Peak  int  `json:"peak_mib"` // the resident maximum; 0 if unknown
	Died  bool `json:"died"`     // weir ended without being killed by the torture
}

// judgeMemory compares the resident memory of each life with its limit, if weir knows the limit.
func (e *Evidence) judgeMemory(r *Report) {
	r.Memory = e.Memory
	for _, l := range e.Memory {
		if l.Died {
			r.MemoryDied++
		}
		if e.KnowsMemory && l.Peak > l.Limit+memoryMargin(l.Limit) {
			r.MemoryOver++
			r.example("memory", fmt.Sprintf("%d MiB resident of %d", l.Peak, l.Limit))
		}
	}
}

// peaks describes the largest peak under each limit.
func peaks(lives []MemoryLife) string {
	most := map[int]int{}
	for _, l := range lives {
		most[l.Limit] = max(most[l.Limit], l.Peak)
	}
	var all []string
	for _, limit := range slices.Sorted(maps.Keys(most)) {
		all = append(all, fmt.Sprintf("%d MiB resident at the most under %d", most[limit], limit))
	}
	return strings.Join(all, ", ")
}
