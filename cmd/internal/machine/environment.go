package machine

import (
	"os"
	"strings"
)

// PlainEnv returns this process's environment without weir's settings, for a child that gets its own.
func PlainEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			env = append(env, v)
		}
	}
	return env
}
