// Package sites moves shares of an account's limits between sites.
//
// Sites have no store in common. Each site enforces its share of each limit alone (bucket.Limit.Part), and the shares
// are at most 100 % together. A move lowers some sites, waits until no window can see more of their calls than the new
// shares allow, and raises others:
//
//	claim ──▶ check ──▶ lower ──▶ await ──▶ confirm ──▶ raise
//
// The mover talks to each site over a link that may be cut at any time, and may die at any time. Other movers may run.
//
// # What must hold
//
//   - In every window of every limit, the calls of all sites together are at most what the limit allows.
//   - A move that fails or dies leaves shares of at most 100 % together. The same move can be run again to go on.
//   - A move raises no site before its await step has ended for all sites.
//   - A move raises no site that another move has claimed since.
//
// deploy/decisions/067-sites.md has the proof. The simulation runs this code against bucket.Memory in virtual time. It
// also plants mistakes, which it must find.
//
// The package knows no NATS and no configuration: Site is what it needs of a site.
package sites
