//go:build race

package gateway_test

// raced: the race detector is on. It makes everything slower and allocates.
const raced = true
