package machine

import (
	"os"
	"strings"
)

// PlainEnv returns this process's environment without weir's settings (WEIR_…), for a child with settings of its own.
func PlainEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			env = append(env, v)
		}
	}
	return env
}
