// Package weirtest runs whole weirs for tests: in the test's process (Rig), in processes that a test can kill (KillRig,
// RestoreRig), with a Redis (RedisRig) and as several replicas (Replicas). Each has a fake paid API, and the tests judge
// weir by that API's own record of calls.
//
// A rig is used through its parts, each of a package below this one: Rig.Producer submits jobs, Rig.Store and Rig.Disk
// read what weir keeps, Rig.CLI and Rig.HTTP are what an operator has, and Rig.Referee judges the calls.
//
// Each rig has its own ports and directories, so tests with rigs can run side by side. A test that sets no environment
// variable must begin with t.Parallel(). The tests are in cmd/weir/test, by subject. Those in cmd/weir/test/soak kill
// at random, wait for a real clock or fill a disk, and run only with "make test-all".
package weirtest
