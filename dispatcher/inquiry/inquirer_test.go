package inquiry

import (
	"testing"
	"time"
)

// TestAgeAt checks that each wait between two inquiries is twice the one before, up to longestRest, and that waits go
// on after that. They once ended then, and the remaining inquiries were all due at once.
func TestAgeAt(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Minute, time.Hour, longestRest} {
		age, want := ageAt(after, 0), after
		if age != after {
			t.Errorf("the first inquiry after %s is due at the age of %s", after, age)
		}
		for n := 1; n <= 100; n++ {
			next := ageAt(after, n)
			wait := next - age
			want = min(2*want, longestRest)
			if wait != want {
				t.Fatalf("after %s: the wait before inquiry %d is %s, want %s", after, n+1, wait, want)
			}
			age = next
		}
	}
}
