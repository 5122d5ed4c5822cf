//go:build !unix

package doctor

// diskOf returns nothing on systems on which weir has no embedded server.
func diskOf(string) (kind, free int64, known bool) { return 0, 0, false }
