package plan

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"weir/bucket/fault"
)

// The values of WEIR_NATS_AUTH.
const (
	authOpen      = "open"
	authOperators = "operators"
	AuthRequired  = "required"
)

// Asks reports whether the server authenticates clients.
func (o *Options) Asks() bool { return o.Server == Embedded && o.Auth != authOpen }

// Server says where NATS runs.
type Server string

// The servers.
const (
	External Server = "external" // a process of its own
	Embedded Server = "embedded" // in weir, killed with it
)

// Options configure a run. A count of zero means that the run does not have the fault.
type Options struct {
	Seed       uint64
	Server     Server
	Auth       string // WEIR_NATS_AUTH of a server inside weir: open, operators or required
	Idempotent bool   // the api is declared idempotent, and is

	// Replicas is the number of weirs, from 1. Several are a fleet: three NATS nodes in a cluster, and a Redis for the
	// shared limits.
	Replicas int

	WorkerKills int // kill -9 of weir, or of a replica
	ServerKills int // kill -9 of the external nats-server, or of each node in turn
	Stops       int // SIGSTOP of weir or the server, longer than timeouts; of a replica, longer than its lease
	Cuts        int // spells of slow or cut connections to the api; not for a fleet
	DiskFulls   int // spells without space on the external server's disk; not for a fleet
	Takeovers   int // a second weir replaces a stopped one, which then continues; external, not for a fleet
	Fleet       FleetFaults

	ConfigChanges int
	Settings      []string // the settings to change; empty: all
	Reloads       bool     // weir reloads its file on SIGHUP, and some changes use that
	IdleKills     int      // kill -9 of weir while nothing is queued; not for a fleet
	PowerLosses   int      // kill -9 of weir, whose notes outside its store are lost; of a fleet: power cuts of all nodes
	MemoryLimits  int      // lives under a WEIR_MEMORY; not for a fleet
	Revocations   int      // spells in which the api answers 401; not for a fleet
	Restores      int      // a backup of the store is restored; server inside
	Redrives      int      // faults during a redrive of the overflowed jobs, at the end; not for a fleet
	Flips         int      // bytes of a queue are flipped while weir is stopped; server inside

	Pack       int  // jobs that a call may have; 0: each call has one
	Priorities bool // jobs have each priority in turn
	Callbacks  bool // weir posts the ends of jobs
	Operations bool // the api accepts calls and goes on working
	Reuse      bool // jobs of a key ask the same, and weir gives answers again
	Settled    bool // only the answer of a call says what the call took and costs

	Rate     int           // calls per second of a key
	Account  int           // calls per second of all keys together; 0: more than the jobs that come
	Quota    int           // of a fleet: calls in each QuotaPer of all keys together; 0: any number
	Keys     int           // the steady keys, besides the two special ones
	Jobs     int           // jobs per second, over all steady keys
	Duration time.Duration // no new fault after this time; 0: until all are done

	Durability string        // WEIR_DURABILITY: always or interval
	Points     []fault.Point // the points to die at; empty: all
	Bug        fault.Bug     // planted in every weir

	Binary string // the weir under torture; required
	Hooked bool   // it and this program can be killed at chosen points
	Dir    string // the directory for everything that the run writes; required
	// Attributes returns the attributes of child processes. They should make a child die with this process.
	Attributes func() *syscall.SysProcAttr
	Talk       io.Writer // receives one line for each notable event; required

	Receives string // the address to which weir posts ends
}

// FleetFaults are the faults that only a fleet has. Each cut lasts longer than a lease.
type FleetFaults struct {
	CutNATS, CutRedis, CutAPI int // a replica from all NATS nodes, from Redis, from the api
	CutNode                   int // a NATS node from the other two; half of the times also from its clients
	RedisKills                int // kill -9 of Redis, which then reads its file
	RedisLosses               int // kill -9 of Redis, whose file is deleted
	RedisSetbacks             int // kill -9 of Redis, which then reads an older copy of its file
	FlipNodes                 int // bytes in the store of a NATS node are flipped while it is stopped
	DeleteRestarts            int // restarts of a NATS node after many deletions
	Scales                    int // a stream gets one copy and then three again; the node with the only copy is restarted
	Rolls, ServerRolls        int // rolling restarts of all replicas, and of all NATS nodes
}

// Bounds of a run.
const (
	mostKills    = 100_000
	mostKeys     = 1000
	mostJobs     = 5000
	mostReplicas = 4
)

// Validate returns all errors in the options, or nil.
func (o *Options) Validate() error {
	var wrong []error
	for _, n := range o.Counts() {
		if *n.N < 0 || *n.N > mostKills {
			wrong = append(wrong, fmt.Errorf("--%s must be from 0 to %d", n.Option, mostKills))
		}
	}
	if o.Server != External && o.Server != Embedded {
		wrong = append(wrong, fmt.Errorf("--server is %q, and must be external or embedded", o.Server))
	}
	if o.Server == Embedded && !slices.Contains([]string{authOpen, authOperators, AuthRequired}, o.Auth) {
		wrong = append(wrong, fmt.Errorf("--auth is %q, and must be open, operators or required", o.Auth))
	}
	if o.Server == Embedded && o.ServerKills+o.DiskFulls+o.Takeovers > 0 {
		wrong = append(wrong, errors.New("an embedded server dies with its weir: without --server external there are no --server-kills, --disk-fulls and --takeovers"))
	}
	if o.Server != Embedded && o.Restores+o.Flips > 0 {
		wrong = append(wrong, errors.New("--restores and --flips need --server embedded: they change the store inside weir"))
	}
	if o.Restores > 0 && o.ConfigChanges+o.IdleKills > 0 {
		wrong = append(wrong, errors.New("a backup takes configurations and budgets back: --restores goes with --config-changes 0 --idle-kills 0"))
	}
	if o.Rate < 1 || o.Rate > 1000 || o.Keys < 1 || o.Keys > mostKeys || o.Jobs < 1 || o.Jobs > mostJobs {
		wrong = append(wrong, fmt.Errorf("--rate must be from 1 to 1000, --keys to %d, --jobs to %d", mostKeys, mostJobs))
	}
	if o.Pack < 0 || o.Pack == 1 || o.Pack > mostPacked {
		wrong = append(wrong, fmt.Errorf("--pack must be from 2 to %d, or 0 for calls of one job", mostPacked))
	}
	if o.Pack > 0 && (o.Operations || o.Reuse) {
		wrong = append(wrong, errors.New("weir refuses packs of such an api: --operations and --reuse go without --pack"))
	}
	if o.Callbacks && o.Restores > 0 {
		wrong = append(wrong, errors.New("a backup takes ends back that were posted: --restores goes without --callbacks"))
	}
	others := o.Pack + o.ConfigChanges + o.IdleKills + o.MemoryLimits + o.Takeovers + o.Restores + o.Flips
	if o.Settled && (others > 0 || o.Operations || o.Reuse) {
		wrong = append(wrong, errors.New("--settled judges every call by one price and one limit: it goes without "+
			"--pack, --operations, --reuse, --config-changes, --idle-kills, --memory-limits, --takeovers, --restores and --flips"))
	}
	if o.Account < 0 || o.Account > mostJobs || o.Account > 0 && o.Takeovers > 0 {
		wrong = append(wrong, fmt.Errorf("--account must be from 0 to %d, and there is none with --takeovers", mostJobs))
	}
	if o.Durability != "always" && o.Durability != "interval" {
		wrong = append(wrong, fmt.Errorf("--durability is %q, not always or interval", o.Durability))
	}
	if !o.Hooked && (o.Bug != "" || len(o.Points) > 0 || o.PowerLosses > 0 && !o.IsFleet()) {
		wrong = append(wrong, errors.New("chosen points, planted bugs and power losses need a weir and a weir-torture built with -tags torture: make torture"))
	}
	return errors.Join(append(wrong, o.validateSettings(), o.validateFleet())...)
}

// validateSettings refuses unknown settings, and settings of which this run can change none.
func (o *Options) validateSettings() error {
	names := Settings()
	for _, name := range o.Settings {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--change %s: there are %s", name, strings.Join(names, ", "))
		}
	}
	if len(o.changeable()) == 0 {
		return errors.New("--change names only what this run cannot change: limits that keys share with --takeovers, the api with --callbacks or --reuse")
	}
	return nil
}

// validateFleet refuses options that do not fit the number of replicas.
func (o *Options) validateFleet() error {
	switch {
	case o.Replicas < 1 || o.Replicas > mostReplicas:
		return fmt.Errorf("--replicas must be from 1 to %d", mostReplicas)
	case !o.IsFleet() && o.Fleet != FleetFaults{}:
		return errors.New("--cut-nats, --cut-redis, --cut-api, --cut-node, --redis-kills, --redis-losses, --redis-setbacks, --flip-nodes, --delete-restarts, --scales, --rolls and --server-rolls need a fleet: --replicas 2 or more")
	case o.Quota < 0 || !o.IsFleet() && o.Quota > 0:
		return errors.New("--quota must be 0 or more, and needs a fleet: --replicas 2 or more")
	case !o.IsFleet():
		return nil
	case o.Server != External:
		return errors.New("replicas share external servers: --replicas goes with --server external")
	case o.Cuts+o.DiskFulls+o.Takeovers+o.IdleKills+o.MemoryLimits+o.Revocations+o.Redrives > 0:
		return errors.New("--cuts, --disk-fulls, --takeovers, --idle-kills, --memory-limits, --revocations and --redrives are for one weir: for a fleet there are --cut-api, --cut-nats and --stops")
	case o.Settled:
		return errors.New("--settled is for one weir: a fleet has no limit in tokens")
	case len(o.Points) > 0:
		return errors.New("--at is for one weir: a fleet is killed at random")
	case o.Keys%fleetPartitions != 0:
		return fmt.Errorf("--keys must be a multiple of %d in a fleet, so that each partition has as many keys as another", fleetPartitions)
	}
	return nil
}

// IsFleet reports whether there are several replicas.
func (o *Options) IsFleet() bool { return o.Replicas > 1 }

// usual returns the default of a count.
func (o *Options) usual(c Count) int {
	if o.IsFleet() {
		return c.InFleet
	}
	return c.Alone
}

// Partitions returns the number of partitions of the api's queue.
func (o *Options) Partitions() int {
	if o.IsFleet() {
		return fleetPartitions
	}
	return 4
}

// Command returns a command line that makes the same plan.
func (o *Options) Command() string {
	words := []string{"weir-torture", fmt.Sprintf("--seed %d --server %s", o.Seed, o.Server)}
	if o.Idempotent {
		words = append(words, "--idempotent")
	}
	if o.Pack > 0 {
		words = append(words, fmt.Sprintf("--pack %d", o.Pack))
	}
	if o.Priorities {
		words = append(words, "--priorities")
	}
	if o.Callbacks {
		words = append(words, "--callbacks")
	}
	if o.Operations {
		words = append(words, "--operations")
	}
	if o.Reuse {
		words = append(words, "--reuse")
	}
	if o.Settled {
		words = append(words, "--settled")
	}
	if o.IsFleet() {
		words = append(words, fmt.Sprintf("--replicas %d", o.Replicas))
	}
	for _, c := range o.Counts() {
		if *c.N > 0 || *c.N != o.usual(c) {
			words = append(words, fmt.Sprintf("--%s %d", c.Option, *c.N))
		}
	}
	words = append(words, fmt.Sprintf("--rate %d --keys %d --jobs %d", o.Rate, o.Keys, o.Jobs))
	if o.Account > 0 {
		words = append(words, fmt.Sprintf("--account %d", o.Account))
	}
	if o.Quota > 0 {
		words = append(words, fmt.Sprintf("--quota %d", o.Quota))
	}
	words = append(words, "--durability "+o.Durability)
	if o.Server == Embedded {
		words = append(words, "--auth "+o.Auth)
	}
	if o.Duration > 0 {
		words = append(words, "--duration "+o.Duration.String())
	}
	for _, name := range o.Settings {
		words = append(words, "--change "+name)
	}
	if o.Reloads {
		words = append(words, "--reloads")
	}
	for _, p := range o.Points {
		words = append(words, "--at "+string(p))
	}
	if o.Bug != "" {
		words = append(words, "--planted "+string(o.Bug))
	}
	return strings.Join(words, " ")
}

// Count is a number of faults of one kind, with the flag that sets it.
type Count struct {
	Option, Usage string
	N             *int
	Alone         int // the default for one weir
	InFleet       int // the default for replicas
}

// Counts returns all counts of faults. They point into the options.
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
		{"power-losses", "kill -9 of weir, after which the machine has another boot and the flight recorder is set back (-tags torture); of a fleet: a power cut of all NATS nodes while one of them rewrites a block, with the loss of what was not synced (needs the right to mount)", &o.PowerLosses, 0, 1},
		{"revocations", "spells in which the api answers 401", &o.Revocations, 0, 0},
		{"restores", "a backup of the store is put back while it is behind; of the server inside", &o.Restores, 0, 0},
		{"flips", "eight bytes of a queue are flipped while weir is stopped; of the server inside", &o.Flips, 0, 0},
		{"redrives", "at the end a redrive of what overflowed, which is killed, or stopped, killed and resumed, so often", &o.Redrives, 0, 0},
		{"cut-nats", "a replica is cut off from all NATS nodes", &f.CutNATS, 0, 1},
		{"cut-redis", "a replica is cut off from Redis", &f.CutRedis, 0, 1},
		{"cut-api", "a replica is cut off from the api", &f.CutAPI, 0, 1},
		{"cut-node", "a NATS node is cut off from the others", &f.CutNode, 0, 1},
		{"redis-kills", "kill -9 of Redis, which reads its file again", &f.RedisKills, 0, 1},
		{"redis-losses", "kill -9 of Redis, whose file is lost", &f.RedisLosses, 0, 1},
		{"redis-setbacks", "kill -9 of Redis, which reads its file as it was up to six seconds before", &f.RedisSetbacks, 0, 1},
		{"flip-nodes", "eight bytes in the store of a NATS node are flipped while it is stopped: of messages, of a stream's state, of snapshots in turn", &f.FlipNodes, 0, 1},
		{"delete-restarts", "restarts of a NATS node right after hundreds of deletions", &f.DeleteRestarts, 0, 1},
		{"scales", "a stream is scaled from three copies to one and back, and the node that had it is restarted", &f.Scales, 0, 1},
		{"rolls", "rolling restarts of all replicas", &f.Rolls, 0, 1},
		{"server-rolls", "rolling restarts of all NATS nodes", &f.ServerRolls, 0, 1},
	}
}

// mostPacked bounds the jobs of a call.
const mostPacked = 100

// KeepBody returns how many bytes of a call's body the api's ledger must keep to show its jobs.
func (o *Options) KeepBody() int {
	if o.Settled {
		return 2 * 64 // its tokens, too
	}
	return 64 * max(1, o.Pack)
}
