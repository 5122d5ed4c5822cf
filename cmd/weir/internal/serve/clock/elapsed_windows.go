package clock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// interruptTime is in kernelbase since Windows 10, the oldest version that Go supports. GetTickCount64 has steps of 16
// ms, with which two calls could start too close together.
var interruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

// elapsed returns a time that cannot be set and that includes the sleep of a suspended machine.
func elapsed() time.Duration {
	var hundreds uint64                                              // of nanoseconds
	_, _, _ = interruptTime.Call(uintptr(unsafe.Pointer(&hundreds))) // it returns nothing
	return time.Duration(hundreds) * 100
}
