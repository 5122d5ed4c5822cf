// Package bench measures weir's limiters beside others. It is a module of its own, so that the others are no
// dependencies of weir.
//
//	cd deploy/bench && go test -run '^$' -bench .
package bench
