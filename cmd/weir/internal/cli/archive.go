package cli

// What `git archive` writes into this file (.gitattributes): a tarball has no history to ask. Elsewhere they begin with $.
const (
	archivedCommit  = "$Format:%H$"
	archivedRelease = "$Format:%(describe:tags=true)$"
)
