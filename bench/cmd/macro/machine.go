package main

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// cpusMax is how many processors a unix.CPUSet holds.
const cpusMax = 1024

// place picks a processor for the gateway and another for the driver, and notes where there are none to pick.
func (b *bench) place() {
	b.serverCPU, b.driverCPU = -1, -1
	if _, err := exec.LookPath("taskset"); err != nil {
		b.note("no taskset in PATH: gateway and driver were not kept to a processor each, and share what there is")
		return
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		b.note("no processor was picked: %v", err)
		return
	}
	for cpu := range cpusMax {
		if !set.IsSet(cpu) {
			continue
		}
		if b.serverCPU < 0 {
			b.serverCPU = cpu
		}
		b.driverCPU = cpu
	}
	if b.serverCPU == b.driverCPU {
		b.note("one processor for gateway and driver")
	}
}

// connsPossible lowers n to the idle connections that the limit of open files allows: the gateway takes nine tenths of it.
func (b *bench) connsPossible(n int) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	most := int(min(limit.Max, 1<<30))*9/10 - connsSpare
	if n <= most {
		return n, nil
	}
	if most <= connsFirst {
		return 0, fmt.Errorf("the limit of open files, %d, is too low for idle connections", limit.Max)
	}
	b.note("%d idle connections instead of %d: the limit of open files is %d", most, n, limit.Max)
	return most, nil
}
