// Package weirtest runs whole weirs for tests: in the test's process (Rig), in processes of their own that can be killed (Process, KillRig),
// beside a Redis (RedisRig) and as several replicas (Replicas), each with a fake paid API whose ledger is what tests judge by.
//
// Rigs have ports and directories of their own, so tests that use them run side by side: a test that sets no variable of its process begins
// with t.Parallel(). The tests stand by subject in cmd/weir/test; those in cmd/weir/test/soak kill at random, wait for a real clock or fill
// a disk, and run with "make test-all" only.
package weirtest
