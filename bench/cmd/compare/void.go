package main

import (
	"errors"
	"fmt"
)

const (
	// floorMax is what the floor may cost at most, in NATS request/reply of the same round. A slow floor proves nothing.
	floorMax = 0.35
	// floorPayloadMax is the largest payload that the rule holds for: beyond, both do little but copy.
	floorPayloadMax = 1000
)

// errVoid says that the comparison was carried through and is worth nothing; the program ends with exit code 3.
var errVoid = errors.New("the run is void")

// judge applies the floor rule to each closed loop that has both floor and NATS: the median of the quotients round by round. In
// the open loop both are made of system calls and wake-ups, where nobody is three times cheaper than another.
func (c *comparison) judge() {
	for _, l := range c.Lines {
		if c.Mode != "load" || l.Peer != "floor" || l.Scenario.Rate > 0 || l.Scenario.Payload > floorPayloadMax {
			continue
		}
		quotients := quotients(c.of("floor", l.Scenario), c.of("nats", l.Scenario))
		if len(quotients) == 0 {
			continue
		}
		c.Floor = spreadOf(quotients)
		if c.Floor.Median > floorMax {
			c.Void = fmt.Sprintf("payload %d: the floor costs %s x NATS request/reply, at most %.2f is allowed",
				l.Scenario.Payload, c.Floor, floorMax)
			return
		}
	}
}

// quotients divides what a command cost in the rounds of one peer by what it cost in those of another, pair by pair.
func quotients(of, by []round) (all []float64) {
	for i := range min(len(of), len(by)) {
		if by[i].Result.CPUPerCommand > 0 {
			all = append(all, of[i].Result.CPUPerCommand/by[i].Result.CPUPerCommand)
		}
	}
	return all
}
