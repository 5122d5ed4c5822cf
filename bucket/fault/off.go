//go:build !torture

package fault

// Built reports whether this build has points and bugs.
const Built = false

// Pass does nothing in this build.
func Pass(Point) {}

// Planted is false in this build.
func Planted(Bug) bool { return false }

// Points returns nil in this build.
func Points() []Point { return nil }

// Rare is false in this build.
func (Point) Rare() bool { return false }

// Bugs returns nil in this build.
func Bugs() []Bug { return nil }

// Env returns nil in this build: it knows no orders.
func (Order) Env() []string { return nil }

// Boot returns "" in this build.
func Boot() string { return "" }

// BootEnv returns "" in this build.
func BootEnv(string) string { return "" }
