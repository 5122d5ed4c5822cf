package torture

// Count is a number of faults of one kind, and the option that sets it.
type Count struct {
	Option, Usage string
	N             *int
	Alone         int // by default where there is one weir
	InFleet       int // by default where there are replicas
}

// Counts are all numbers of faults. They point into the options.
func (o *Options) Counts() []Count {
	f := &o.Fleet
	return []Count{
		{"worker-kills", "kill -9 of weir, or of a replica", &o.WorkerKills, 10, 3},
		{"server-kills", "kill -9 of the server, or of each NATS node in turn", &o.ServerKills, 5, 3},
		{"stops", "SIGSTOP of weir or the server, longer than timeouts; of a replica, longer than its lease", &o.Stops, 2, 1},
		{"cuts", "spells of slow or cut connections to the api", &o.Cuts, 6, 0},
		{"disk-fulls", "spells of a full disk under the server", &o.DiskFulls, 0, 0},
		{"takeovers", "a second weir takes over while the first is stopped; leaves out what limits share, which two weirs cannot without Redis", &o.Takeovers, 0, 0},
		{"config-changes", "changes of the configuration: applied, applied just before a kill, or in the file that the next start finds", &o.ConfigChanges, 8, 2},
		{"idle-kills", "kill -9 of weir while nothing is queued", &o.IdleKills, 3, 0},
		{"memory-limits", "starts of weir with little or much memory, and a burst of large jobs and of many keys", &o.MemoryLimits, 1, 0},
		{"revocations", "spells in which the api answers 401", &o.Revocations, 0, 0},
		{"cut-nats", "a replica is cut off from all NATS nodes", &f.CutNATS, 0, 1},
		{"cut-redis", "a replica is cut off from Redis", &f.CutRedis, 0, 1},
		{"cut-api", "a replica is cut off from the api", &f.CutAPI, 0, 1},
		{"cut-node", "a NATS node is cut off from the others", &f.CutNode, 0, 1},
		{"redis-kills", "kill -9 of Redis, which reads its file again", &f.RedisKills, 0, 1},
		{"redis-losses", "kill -9 of Redis, whose file is lost", &f.RedisLosses, 0, 0},
		{"rolls", "rolling restarts of all replicas", &f.Rolls, 0, 1},
		{"server-rolls", "rolling restarts of all NATS nodes", &f.ServerRolls, 0, 1},
	}
}
