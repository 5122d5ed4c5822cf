// Package sites moves shares of an account's limits between sites.
//
// Sites have no store in common. Each site enforces its share of each limit alone (bucket.Limit.Part), and the shares
// are at most 100 % together. A move lowers sites, waits until no window can see more than the new shares of them, and
// raises others:
//
//	claim ──▶ check ──▶ lower ──▶ await ──▶ confirm ──▶ raise
//
// The mover talks to each site over a link that may be cut at any time, and may die at any time. Other movers may run.
//
// # What must hold
//
//   - In every window of every limit, the calls of all sites together are at most what the limit allows.
//   - A move that fails or dies leaves shares of at most 100 % together. The same move goes on from there.
//   - Before the await step of a move has ended for all sites, the move raises no site.
//   - A move raises no site that another move has claimed since.
//
// deploy/decisions/067-sites.md has the proof. The simulation runs this code against bucket.Memory in virtual time, and
// plants mistakes in the order.
//
// The package knows no NATS and no configuration: Site is what it needs of a site.
package sites
