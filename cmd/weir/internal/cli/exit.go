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

// Exit is an error with the code the process ends with. A command that has said all there is to say gives no text.
type Exit struct {
	Code int
	Err  error
}

// Error implements error. It is empty for a command that has said all there is to say.
func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives what the code was put on.
func (e *Exit) Unwrap() error { return e.Err }

// Usage says that the command was called wrongly, or that its settings are wrong.
func Usage(err error) error { return &Exit{ExitUsage, err} }

// Misconfigured says that a server's configuration or environment is wrong: another start does not mend that.
func Misconfigured(err error) error { return &Exit{ExitConfig, err} }

// NotFound says that what the command is about is not there, or that there is nothing to print.
func NotFound(err error) error { return &Exit{ExitNotFound, err} }

// Refused says that something stands in the way of what was asked, or that somebody said no.
func Refused(err error) error { return &Exit{ExitRefused, err} }

// Unreachable says that the server, or a replica that has to answer, cannot be reached.
func Unreachable(err error) error { return &Exit{ExitUnreachable, err} }
