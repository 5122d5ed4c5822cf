//go:build !unix

package doctor

// diskOf knows nothing where the server inside does not run.
func diskOf(string) (kind, free int64, known bool) { return 0, 0, false }
