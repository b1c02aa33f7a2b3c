//go:build race

package journal

const raced = true
