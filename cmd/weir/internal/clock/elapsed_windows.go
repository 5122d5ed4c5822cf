package clock

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// interruptTime is in kernelbase since Windows 10, which is the first that Go runs on. GetTickCount64 tells the same in steps of 16 ms,
// by which two calls could start too soon after each other.
var interruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTimePrecise")

// elapsed is a time that nobody sets and that goes on while the machine is suspended.
func elapsed() time.Duration {
	var hundreds uint64                                              // of nanoseconds
	_, _, _ = interruptTime.Call(uintptr(unsafe.Pointer(&hundreds))) // it returns nothing
	return time.Duration(hundreds) * 100
}
