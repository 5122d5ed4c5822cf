// Package verify checks every recorded call against the limits, afterwards and exactly.
//
// It reads the ledger and checks every window of every limit with bucket.Checking. How the calls were planned plays no
// role: it shares only the rules with the code that planned them. Beside the limits it looks for jobs that were called
// again after a call that may have been processed, and adds up what was spent.
//
// A window is judged by what its calls had reserved. How far it went over because calls took more is reported apart.
//
// What always holds: a limit passes only if all of its calls were checked. A call that was recorded too late makes the
// verdict inconclusive. Memory is bounded by the keys and by the calls of one period of each limit, not by the ledger.
//
// The package does not know the command's flags. Its tests run the command, with a ledger that a worker has written
// (cmd/weir/test/limits/verify_test.go). Late calls are tested in this package, and the judgement alone in
// bucket/checking_test.go and bucket/checker_test.go.
package verify
