package cli

import (
	"runtime"
	"runtime/debug"
)

// Build describes this binary, as version --json prints it.
type Build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // time of the commit
	Modified bool   `json:"modified,omitempty"`
}

// ThisBuild returns the version, commit and toolchain of this binary.
func ThisBuild() Build {
	b := Build{Version: Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Commit: Commit()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
