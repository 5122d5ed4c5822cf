package cli

import "os/user"

// User is the name of the system's user who runs this process.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
