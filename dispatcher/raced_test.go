//go:build race

package dispatcher

const raced = true // by the race detector
