//go:build !amd64

package router

func prefetch(_, _ uintptr) {}
