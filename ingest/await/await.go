// Package await is how tests wait: every wait has an end of its own, and its failure says what it waited for.
//
// A wait without an end shows nothing but the end of the whole package, minutes later. What a test waits for must not depend
// on how fast the machine is: a queue that is still to hold jobs is filled while nothing is called.
package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Patience is how long a test waits in vain. It is meant for a machine that is slow, or busy with other things too.
const Patience = 90 * time.Second

// Context ends when a test has waited in vain, or is over. Its cause says what the test waited for.
func Context(t testing.TB, what string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Patience, fmt.Errorf("waited %s in vain for %s", Patience, what))
	t.Cleanup(cancel)
	return ctx
}

// BuildPatience is how long a test waits for a compiler, which may have everything to build on a machine that is busy.
const BuildPatience = 8 * time.Minute

// Build ends when a compiler has been waited for in vain, or the test is over.
func Build(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), BuildPatience, fmt.Errorf("waited %s in vain for the compiler", BuildPatience))
	t.Cleanup(cancel)
	return ctx
}

// Receive gives the next value of a channel, or its zero value where the channel is closed.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case value := <-from:
		return value
	case <-limit.C:
		t.Fatalf("waited %s in vain for %s", Patience, what)
		panic("unreachable")
	}
}

// Result gives what a call returns that blocks until something is over, as a worker's Wait does.
func Result[T any](t testing.TB, what string, call func() T) T {
	t.Helper()
	result := make(chan T, 1)
	go func() { result <- call() }()
	return Receive(t, what, result)
}

// Return waits until a call returns that blocks until something is over, as a WaitGroup's Wait does.
func Return(t testing.TB, what string, call func()) {
	t.Helper()
	Result(t, what, func() struct{} { call(); return struct{}{} })
}

// Until asks again and again until it is told yes.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.NewTimer(Patience)
	defer tick.Stop()
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited %s in vain for %s", Patience, what)
		}
	}
}
