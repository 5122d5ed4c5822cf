package cli

import (
	"os/user"
	"runtime/debug"
	"strings"
)

// What a build says of itself, put there by the linker: -X weir/cmd/weir/internal/cli.release=v1.2.3, and commit in the same way.
var (
	release string
	commit  string
)

// develops is the version of a build that nobody has given one.
const develops = "0.0.0-dev"

// Version is the version this binary was built from, without a leading v, or "0.0.0-dev": as the build says, or the archive that
// it was built of, or Go.
func Version() string {
	said := release
	if said == "" && !strings.HasPrefix(archivedRelease, "$") {
		said = archivedRelease
	}
	if info, ok := debug.ReadBuildInfo(); ok && said == "" && strings.HasPrefix(info.Main.Version, "v") {
		said = info.Main.Version
	}
	if said = strings.TrimPrefix(said, "v"); said == "" || said[0] < '0' || said[0] > '9' {
		return develops
	}
	return said
}

// Commit is the commit that this binary was built from, empty where nobody knows.
func Commit() string {
	if commit != "" {
		return commit
	}
	if !strings.HasPrefix(archivedCommit, "$") {
		return archivedCommit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

// User is the name of the system's user who runs this process.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
