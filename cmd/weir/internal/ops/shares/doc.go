// Package shares shows and moves the shares of an account at several sites.
//
// Package sites has the order in which a move does its steps. This package connects to the sites, each of which has a
// NATS server of its own. A share in force is a part of its site's running configuration.
//
//	reach.go    connections to sites, by WEIR_SITES
//	site.go     one site, as a move sees it
//	move.go     the move of an account's shares
//	show.go     what is in force where
package shares
