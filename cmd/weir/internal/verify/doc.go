// Package verify holds every recorded call against the limits, afterwards and exactly.
//
// It reads the ledger and looks at every window of every limit, with bucket.Checking. It does not care how the calls were planned,
// and shares nothing with what planned them but the rules. Beside the limits it looks for jobs that were called again after a call
// that may have been processed, and adds up what was spent.
//
// What always holds: a limit passes only where all of its calls were looked at. A call that was recorded too late makes the
// verdict inconclusive. Memory is bounded by the keys and by the calls of one period of each limit, not by the ledger.
//
// The package does not know the command's flags. Its tests go through the command, with a ledger that a worker has written
// (cmd/weir/test/limits/verify_test.go). What it says of calls that came late is tested here, and the judgement by itself in bucket/checking_test.go and
// bucket/checker_test.go.
package verify
