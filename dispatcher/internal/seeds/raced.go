//go:build race

package seeds

const raced = true // by the race detector
