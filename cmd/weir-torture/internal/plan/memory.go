package plan

// MemoryVariable sets how much memory weir may keep resident. A weir that does not know this variable warns and
// continues.
const MemoryVariable = "WEIR_MEMORY"

// memoryLimits are the values of MemoryVariable, in MiB: little, enough, and more than weir needs.
var memoryLimits = []int{128, 256, 1024}

// The load under a memory limit. All of it is submitted at once.
const (
	LargeKeys  = 4
	LargeJobs  = 10 // of each of these keys
	LargeBody  = 200 << 10
	ManyKeys   = 200 // with one small job each
	ManyAtOnce = 8   // producers of these

	LimitMemory Kind = "memory limits"
)
