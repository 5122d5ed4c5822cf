package cli

// The exit codes of the process; 0 is success.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitUnreachable = 5
	ExitConfig      = 78 // EX_CONFIG of sysexits.h
)

// Exit is an error with the exit code of the process. Err is nil if the command has already printed its error.
type Exit struct {
	Code int
	Err  error
}

// Error implements error. It returns "" if the command has already printed its error.
func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error without the code.
func (e *Exit) Unwrap() error { return e.Err }

// Usage marks an error of the command line or of the settings.
func Usage(err error) error { return &Exit{ExitUsage, err} }

// Misconfigured marks an error of a server's configuration or environment, which a restart does not fix. A supervisor
// should not restart the process.
func Misconfigured(err error) error { return &Exit{ExitConfig, err} }

// NotFound marks an error that says that something named does not exist, or that there is nothing to print.
func NotFound(err error) error { return &Exit{ExitNotFound, err} }

// Refused marks an error that says that the present state does not allow the operation, or that the user's answer was
// no.
func Refused(err error) error { return &Exit{ExitRefused, err} }

// Unreachable marks an error that says that the server, or a replica that must answer, cannot be reached.
func Unreachable(err error) error { return &Exit{ExitUnreachable, err} }
