// Package bench measures weir's limiters beside those that others use. It is a module of its own: what weir is compared with is none of
// its dependencies.
//
//	cd deploy/bench && go test -run '^$' -bench .
package bench
