package cli

// `git archive` replaces these values (.gitattributes), because a tarball has no history. In a checkout they begin with
// $.
const (
	archivedCommit  = "$Format:%H$"
	archivedRelease = "$Format:%(describe:tags=true)$"
)
