package clock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// interruptTime reads the interrupt time. It is in kernelbase since Windows 10, the oldest version that Go supports.
// GetTickCount64 would not do: it has steps of 16 ms, within which two calls could start too close together.
var interruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

// elapsed returns the time of a clock that cannot be set and that counts the sleep of a suspended machine.
func elapsed() time.Duration {
	var hundreds uint64                                              // hundreds of nanoseconds
	_, _, _ = interruptTime.Call(uintptr(unsafe.Pointer(&hundreds))) // the procedure returns nothing
	return time.Duration(hundreds) * 100
}
