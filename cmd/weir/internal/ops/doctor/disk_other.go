//go:build !unix

package doctor

// diskOf returns nothing on systems without the server inside.
func diskOf(string) (kind, free int64, known bool) { return 0, 0, false }
