package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal runs work with a context that ends at the first SIGINT or SIGTERM, and
// returns what work returns. At a second signal it returns at once, whatever work does.
func untilSignal(work func(ctx context.Context) error) error {
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(stop)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	select {
	case err := <-done:
		return err
	case <-stop:
		cancel()
	}
	select {
	case err := <-done:
		return err
	case <-stop:
		return &exitError{code: exitFail}
	}
}
