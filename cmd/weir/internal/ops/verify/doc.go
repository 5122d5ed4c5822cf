// Package verify checks every recorded call against the limits, exactly, after the fact.
//
// It reads the ledger and checks every window of every limit with bucket.Checking. It shares the rules with the code
// that planned the calls, but none of the planning. It also looks for jobs that were called again after a call that may
// have been processed, and adds up what was spent.
//
// A window passes or fails by what its calls had reserved. If the calls took more than that, the excess is reported
// separately.
//
// A limit passes only if all of its calls were checked. A call that was recorded too late makes the verdict
// inconclusive. Memory is bounded by the keys and by the calls of one period of each limit, not by the ledger.
//
// The package does not know the command's flags. The tests of the command use a ledger that a worker has written
// (cmd/weir/test/limits/verify_test.go). Late calls are tested in this package, and the judgement alone in
// bucket/checking_test.go and bucket/checker_test.go.
package verify
