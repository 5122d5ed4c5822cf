// Package await has the waits of the tests. Every wait has its own timeout, and fails with what it waited for.
//
// Without its own timeout, a wait would end only when the whole package times out, minutes later. A test must not wait
// for a condition that depends on the machine's speed: a test that needs jobs in a queue pauses calls before it fills
// the queue.
package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Patience is how long a test waits before it fails. It is long enough for a slow or busy machine.
const Patience = 90 * time.Second

// Context returns a context that ends after Patience, or with the test. Its cause names what the test waited for.
func Context(t testing.TB, what string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Patience, fmt.Errorf("waited %s in vain for %s", Patience, what))
	t.Cleanup(cancel)
	return ctx
}

// BuildPatience is how long a test waits for the compiler. It is long enough to build everything on a busy machine.
const BuildPatience = 8 * time.Minute

// Build returns a context that ends after BuildPatience, or with the test.
func Build(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), BuildPatience, fmt.Errorf("waited %s in vain for the compiler", BuildPatience))
	t.Cleanup(cancel)
	return ctx
}

// Receive returns the next value of a channel, or the zero value if the channel is closed. It fails the test after
// Patience.
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

// Result returns the result of a call that blocks, for example a worker's Wait. It fails the test after Patience.
func Result[T any](t testing.TB, what string, call func() T) T {
	t.Helper()
	result := make(chan T, 1)
	go func() { result <- call() }()
	return Receive(t, what, result)
}

// Return waits for a call that blocks, for example a WaitGroup's Wait. It fails the test after Patience.
func Return(t testing.TB, what string, call func()) {
	t.Helper()
	Result(t, what, func() struct{} { call(); return struct{}{} })
}

// Until polls ok every 5 ms until it returns true. It fails the test after Patience.
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
