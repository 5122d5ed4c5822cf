package config

import (
	"fmt"
	"testing"
)

// TestTooManyIDs checks the warning if more jobs may end within dedupe than weir remembers ids of.
func TestTooManyIDs(t *testing.T) {
	for _, tt := range []struct {
		dedupe, rate, shared string
		warns                bool
	}{
		{"10m", "1000/s", "", false},
		{"10m", "10000/s", "", true},
		{"7d", "3/s", "", false},
		{"7d", "10/s", "", true},
		{"7d", "3/s", "limits: [{name: all, rate: 20/s}]", false},
		{"7d", "1/s", "limits: [{name: all, rate: 100/s}]", true},
	} {
		text := fmt.Sprintf("apis:\n  pay:\n    url: https://api.example.com\n    bucket: {rate: %s, capacity: 10}\n    %s\ndedupe: %s\n", tt.rate, tt.shared, tt.dedupe)
		c, err := Parse([]byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if (len(c.Warnings) > 0) != tt.warns {
			t.Errorf("%+v: %v", tt, c.Warnings)
		}
	}
}
