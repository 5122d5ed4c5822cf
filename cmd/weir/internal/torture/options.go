package torture

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"weir/bucket/fault"
)

// Server says where NATS runs.
type Server string

// The servers.
const (
	External Server = "external" // a process of its own
	Embedded Server = "embedded" // in weir, and killed with it
)

// Options of a run. Zero counts leave a fault out.
type Options struct {
	Seed       uint64
	Server     Server
	Idempotent bool // what the api is declared to be, and is

	WorkerKills int // kill -9 of weir
	ServerKills int // kill -9 of the external nats-server
	Stops       int // SIGSTOP of weir or the server, longer than timeouts
	Cuts        int // spells of slow or cut connections to the api
	DiskFulls   int // spells without room on the external server's disk
	Takeovers   int // a second weir takes over while the first is stopped, which then goes on; external only

	Rate     int           // calls a second of a key
	Keys     int           // besides the two special ones
	Jobs     int           // a second, over all keys
	Duration time.Duration // no new fault after it; 0: until all are done

	Durability string        // WEIR_DURABILITY: always or interval
	Points     []fault.Point // only at these; empty: at all there are
	Bug        fault.Bug     // planted in every weir

	Binary string // this program; required
	Dir    string // for everything the run writes; required
	// Attributes are those of a child process: it should die with this one.
	Attributes func() *syscall.SysProcAttr
	Talk       io.Writer // gets one line for what happens now and then; required
}

// Bounds of a run.
const (
	mostKills = 100_000
	mostKeys  = 1000
	mostJobs  = 5000
)

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	var wrong []error
	for _, n := range []int{o.WorkerKills, o.ServerKills, o.Stops, o.Cuts, o.DiskFulls, o.Takeovers} {
		if n < 0 || n > mostKills {
			wrong = append(wrong, fmt.Errorf("a number of faults must be from 0 to %d", mostKills))
			break
		}
	}
	if o.Server != External && o.Server != Embedded {
		wrong = append(wrong, fmt.Errorf("--server is %q, not external or embedded", o.Server))
	}
	if o.Server == Embedded && o.ServerKills+o.DiskFulls+o.Takeovers > 0 {
		wrong = append(wrong, errors.New("an embedded server dies with its weir: without --server external there are no --server-kills, --disk-fulls and --takeovers"))
	}
	if o.Rate < 1 || o.Rate > 1000 || o.Keys < 1 || o.Keys > mostKeys || o.Jobs < 1 || o.Jobs > mostJobs {
		wrong = append(wrong, fmt.Errorf("--rate must be from 1 to 1000, --keys to %d, --jobs to %d", mostKeys, mostJobs))
	}
	if o.Durability != "always" && o.Durability != "interval" {
		wrong = append(wrong, fmt.Errorf("--durability is %q, not always or interval", o.Durability))
	}
	if !fault.Built && (o.Bug != "" || len(o.Points) > 0) {
		wrong = append(wrong, errors.New("chosen points and planted bugs need a build with -tags torture: make torture"))
	}
	return errors.Join(wrong...)
}

// Command is the command line that makes the same plan.
func (o *Options) Command() string {
	words := []string{"weir torture", fmt.Sprintf("--seed %d --server %s", o.Seed, o.Server)}
	if o.Idempotent {
		words = append(words, "--idempotent")
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"worker-kills", o.WorkerKills},
		{"server-kills", o.ServerKills},
		{"stops", o.Stops},
		{"cuts", o.Cuts},
		{"disk-fulls", o.DiskFulls},
		{"takeovers", o.Takeovers},
		{"rate", o.Rate},
		{"keys", o.Keys},
		{"jobs", o.Jobs},
	} {
		words = append(words, fmt.Sprintf("--%s %d", f.name, f.n))
	}
	words = append(words, "--durability "+o.Durability)
	if o.Duration > 0 {
		words = append(words, "--duration "+o.Duration.String())
	}
	for _, p := range o.Points {
		words = append(words, "--at "+string(p))
	}
	if o.Bug != "" {
		words = append(words, "--planted "+string(o.Bug))
	}
	return strings.Join(words, " ")
}
