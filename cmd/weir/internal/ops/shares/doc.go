// Package shares shows and moves the shares of an account at several sites.
//
// Package sites has the order of a move. This package reaches the sites: each has a NATS server of its own. A share in
// force is a part of the running configuration of its site.
//
//	reach.go    connections to sites, by WEIR_SITES
//	site.go     one site, as a move sees it
//	move.go     the move of an account's shares
//	show.go     what is in force where
package shares
