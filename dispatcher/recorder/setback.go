//go:build !torture

package recorder

import "errors"

// SetBack does nothing in this build.
func SetBack(string) (int, error) { return 0, errors.New("this build sets nothing back") }
