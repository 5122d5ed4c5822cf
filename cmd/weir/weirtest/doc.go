// Package weirtest runs whole weirs for tests: in the test's process (Rig), in processes of their own that can be
// killed (Process, KillRig), beside a Redis (RedisRig) and as several replicas (Replicas). Each has a fake paid API,
// and the tests judge weir by the ledger of that API.
//
// Rigs have ports and directories of their own, so tests that use them run side by side. A test that sets no variable
// of its process must begin with t.Parallel(). The tests are in cmd/weir/test, by subject. Those in cmd/weir/test/soak
// kill at random, wait for a real clock or fill a disk, and run only with "make test-all".
package weirtest
