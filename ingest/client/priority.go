package client

import "fmt"

// Priority says which waiting jobs are called sooner. The zero Priority is Normal. A more urgent priority is a smaller
// number.
type Priority int8

// The priorities.
const (
	High Priority = iota - 1
	Normal
	Low
)

// String returns the priority as Weir-Priority says it.
func (p Priority) String() string {
	switch p {
	case High:
		return "high"
	case Normal:
		return "normal"
	case Low:
		return "low"
	}
	return fmt.Sprintf("priority(%d)", int8(p))
}

// ParsePriority parses the value of Weir-Priority.
func ParsePriority(value string) (Priority, error) {
	for p := High; p <= Low; p++ {
		if value == p.String() {
			return p, nil
		}
	}
	return Normal, fmt.Errorf("it says %s, %s or %s", High, Normal, Low)
}
