package cli

import (
	"os/user"
	"runtime/debug"
	"strings"
)

// The linker sets these variables: release by -X weir/cmd/weir/internal/cli.release=v1.2.3, and commit in the same way.
var (
	release string
	commit  string
)

// develops is the version of a build without a release.
const develops = "0.0.0-dev"

// Version returns the version of this binary without a leading v, or "0.0.0-dev". It comes from the linker, from the
// source archive, or from Go's build information.
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

// Commit returns the commit that this binary was built from, or "" if it is unknown.
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

// User returns the name of the user who runs this process, "unknown" if the system does not tell.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
