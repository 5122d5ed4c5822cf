//go:build !linux

package fakeapi

import "time"

// machineClock returns nothing on this system, so a continued ledger uses the wall clock.
func machineClock() (boot string, mono time.Duration) { return "", 0 }
