package router

import "testing"

// A prefetch faults nowhere, wherever it points: what it is told may be stale.
func TestPrefetchAnywhere(t *testing.T) {
	for _, addr := range []uintptr{0, 1, 4095, 1 << 46, 1 << 63, ^uintptr(0), ^uintptr(0) - 200} {
		for _, n := range []uintptr{0, 1, 64, 65, 1000} {
			prefetch(addr, n)
		}
	}
}
