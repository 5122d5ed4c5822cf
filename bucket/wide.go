package bucket

import "math/bits"

// wide is an unsigned number of 128 bits: for a slow rate, units times nanoseconds do not fit into 64 bits.
type wide struct {
	hi, lo uint64
}

func mul(a, b uint64) wide {
	hi, lo := bits.Mul64(a, b)
	return wide{hi, lo}
}

func (w wide) add(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	hi, _ := bits.Add64(w.hi, x.hi, carry)
	return wide{hi, lo}
}

// sub returns w - x, for x <= w.
func (w wide) sub(x wide) wide {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	hi, _ := bits.Sub64(w.hi, x.hi, borrow)
	return wide{hi, lo}
}

func (w wide) cmp(x wide) int {
	switch {
	case w == x:
		return 0
	case w.hi < x.hi || w.hi == x.hi && w.lo < x.lo:
		return -1
	default:
		return 1
	}
}

func (w wide) float() float64 { return float64(w.hi)*0x1p64 + float64(w.lo) }
