//go:build !linux

package fakeapi

import "time"

// machineClock is not known here: a continued ledger goes by the wall clock.
func machineClock() (boot string, mono time.Duration) { return "", 0 }
