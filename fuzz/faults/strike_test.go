package faults

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// times is how often a fault strikes.
func (s *system) times(long int) int {
	if testing.Short() {
		return 1
	}
	return long
}

// pauseTime is longer than a peer may be silent, and in the long run than callbacks and callers wait.
func pauseTime() time.Duration {
	if testing.Short() {
		return 6 * time.Second
	}
	return 20 * time.Second
}

func (s *system) killGateway() {
	for range s.times(6) {
		s.more(1 + s.rnd.IntN(100))
		s.gateway.kill()
		s.startGateway()
	}
}

func (s *system) killEdges() {
	for range s.times(6) {
		s.more(1 + s.rnd.IntN(100))
		i := s.rnd.IntN(numEdges)
		s.edges[i].kill()
		s.more(s.rnd.IntN(50)) // the other edge's, and those that are queued
		s.startEdge(i)
		if s.rnd.IntN(2) == 0 {
			s.complete()
		}
	}
}

func (s *system) killReceiver() {
	for range s.times(3) {
		s.more(1 + s.rnd.IntN(100))
		s.receiver.kill()
		s.more(100 + s.rnd.IntN(400)) // nobody listens
		s.receiver.start()
	}
}

// blackHole lasts until both sides have given the connection up, and once it is too short for that.
func (s *system) blackHole() {
	s.proxy.hold()
	s.more(30)
	s.proxy.heal()
	for range s.times(3) {
		s.more(1 + s.rnd.IntN(100))
		s.proxy.hold()
		until(s.t, "the edge to be lost", func() bool {
			var e struct{ Edge struct{ Connection string } }
			s.get("/api/edges/edge-0", &e)
			return e.Edge.Connection == "OFFLINE"
		})
		s.more(s.rnd.IntN(300))
		s.proxy.heal()
	}
}

// fillDisk lets the journal grow to the end of its disk, kills the Gateway there, and makes room.
func (s *system) fillDisk() {
	failing := func() bool {
		status, _, err := s.call("GET", "/readyz", "", answerWithin)
		return err == nil && status == 503
	}
	until(s.t, "the disk to be full", failing)
	until(s.t, "commands to be refused", func() bool { return s.book.refusals("OVERLOADED") > 50 })
	s.gateway.kill()
	s.startGateway()
	until(s.t, "the disk to be full for the next process", failing)
	extend(s.t, s.dirs.gateway, "4g")
	until(s.t, "the Gateway to see it", func() bool { return !failing() })
}

// feel has the receiver in a mood until callbacks have met it, and in the long run until some have become dead letters
// of it or, where the Gateway leaves a host alone that does not speak HTTP, for a while.
func (s *system) feel(m mood) {
	s.receiver.feel(m)
	enough := int64(40)
	if m == mute {
		enough = 4 // each holds a connection, and there are few while none succeeds
	}
	until(s.t, "callbacks to come", func() bool { return s.receiver.treated.Load() >= enough })
	switch {
	case testing.Short() || m == slow:
	case m == broken:
		until(s.t, "a dead letter", func() bool {
			var list struct{ Callbacks []struct{ ID string } }
			s.get("/api/callbacks?state=dead", &list)
			return len(list.Callbacks) > 0
		})
	default:
		<-time.After(pauseTime())
	}
	s.receiver.feel(fine)
}

// stepClocks steps the wall clocks of the Gateway and of an edge while they run.
func (s *system) stepClocks() {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		s.more(1 + s.rnd.IntN(50))
		if err := errors.Join(s.gateway.clock.step(off), s.edges[0].clock.step(off)); err != nil {
			s.t.Fatal(err)
		}
		s.flows(50)
	}
}

// stepBetween steps them between a kill and a start, to each of these in turn. What a clock makes forget, forward by more
// than retention and keep, is not looked at.
func (s *system) stepBetween(offs ...time.Duration) {
	for _, s.off = range offs {
		s.edges[1].kill() // what is queued for its devices finds nobody, and must end in time all the same
		s.more(50)
		s.gateway.kill()
		s.edges[0].kill()
		s.startGateway()
		s.startEdge(0)
		s.flows(50)
		s.startEdge(1)
	}
}

// takeDescriptors takes all connections that the Gateway has to give. Those that are there go on; an edge that is
// killed has to wait outside.
func (s *system) takeDescriptors() {
	for range s.times(3) {
		var held []net.Conn
		s.more(1 + s.rnd.IntN(50))
		until(s.t, "the Gateway to shed", func() bool {
			conn, err := net.Dial("tcp", s.gatewayAddr())
			if err != nil {
				return false
			}
			held = append(held, conn)
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err = conn.Read(make([]byte, 1))
			return !os.IsTimeout(err)
		})
		s.more(20)
		s.edges[1].kill()
		s.startEdge(1)
		s.more(20)
		for _, conn := range held {
			_ = conn.Close()
		}
		s.complete()
	}
}

// endDescriptors takes the Gateway's descriptors away while it runs: those in use stay, no other is given, not to
// an edge that comes back nor for a callback.
func (s *system) endDescriptors() {
	pid := s.gateway.cmd.Process.Pid
	for range s.times(3) {
		s.more(1 + s.rnd.IntN(50))
		var was unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
			s.t.Fatal(err)
		}
		none := unix.Rlimit{Cur: 8, Max: was.Max} // all of these are in use
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &none, nil); err != nil {
			s.t.Fatal(err)
		}
		before := s.gateway.logged("accept failed")
		s.receiver.kill()
		s.receiver.start()
		s.edges[1].kill()
		s.startEdge(1)
		until(s.t, "the Gateway to take nobody in", func() bool { return s.gateway.logged("accept failed") > before })
		s.more(20)
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			s.t.Fatal(err)
		}
		s.complete()
	}
}

// strikeSeveral lets faults overlap.
func (s *system) strikeSeveral() {
	for range s.times(6) {
		mood := []mood{fine, slow, broken, garbage, mute}[s.rnd.IntN(5)]
		s.receiver.feel(mood)
		i := s.rnd.IntN(numEdges)
		s.proxy.hold()
		s.more(1 + s.rnd.IntN(50))
		s.edges[i].kill()
		s.more(1 + s.rnd.IntN(50))
		s.gateway.kill()
		s.startEdge(i)
		s.startGateway()
		s.more(1 + s.rnd.IntN(20))
		s.proxy.heal()
		s.receiver.feel(fine)
		s.flows(20)
	}
}
