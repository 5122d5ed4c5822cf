package cli

import (
	"os/user"
	"runtime/debug"
)

// Version is the version this binary was built from, without a leading v: "0.0.0-dev" outside a release.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.0.0-dev"
}

// User is the name of the system's user who runs this process.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
