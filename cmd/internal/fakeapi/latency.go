package fakeapi

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// Shape is the form of a distribution.
type Shape string

const (
	// Constant is always Mean. It is the zero value.
	Constant Shape = ""
	// Uniform is from Min to 2 Mean − Min.
	Uniform Shape = "uniform"
	// Exponential is Min plus an exponential distribution with the mean Mean − Min.
	Exponential Shape = "exponential"
	// LogNormal has the median Mean and the 99th percentile 10 Mean, so most calls are quick and a few are very slow.
	LogNormal Shape = "lognormal"
)

// Latency is the distribution of how long a call takes. A call's latency depends only on Seed and the call's number, so
// a run with the same arrivals has the same latencies. The zero value is no latency.
type Latency struct {
	Shape     Shape
	Mean, Min time.Duration
	// Max cuts the tail. Zero means 100 times Mean.
	Max  time.Duration
	Seed uint64
}

func (l Latency) validate() error {
	switch l.Shape {
	case Constant, Uniform, Exponential, LogNormal:
	default:
		return errors.New("Latency.Shape is unknown")
	}
	if l.Min < 0 || l.Mean < l.Min || l.Mean > time.Hour || l.Max < 0 {
		return errors.New("Latency: Min must be from 0 to Mean, Mean at most an hour, Max not negative")
	}
	return nil
}

// of returns the latency of a call.
func (l Latency) of(number int64) time.Duration {
	if l.Mean == 0 {
		return 0
	}
	random := rand.New(rand.NewPCG(l.Seed, uint64(number)))
	spread := float64(l.Mean - l.Min)
	d := float64(l.Mean)
	switch l.Shape {
	case Constant:
	case Uniform:
		d = float64(l.Min) + 2*spread*random.Float64()
	case Exponential:
		d = float64(l.Min) + spread*random.ExpFloat64()
	case LogNormal:
		const sigma = 0.98976 // ln 10 divided by the 99th percentile of the normal distribution
		d = float64(l.Mean) * math.Exp(sigma*random.NormFloat64())
	}
	longest := l.Max
	if longest == 0 {
		longest = 100 * l.Mean
	}
	return min(max(time.Duration(d), l.Min), longest)
}
