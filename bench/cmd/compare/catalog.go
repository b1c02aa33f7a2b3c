package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"subway/bench/drive"
	"subway/bench/peers"
)

// skip says why a peer is not in the comparison.
type skip struct {
	Peer string `json:"peer"`
	Why  string `json:"why"`
}

// everyone are the peers of a comparison that names none.
const everyone = "floor,gateway,gateway-memory,gorilla,node,mosquitto,nats"

// does says in which modes a peer of each protocol can be measured.
var does = map[string][]string{
	drive.ProtoSubway: {"load", "http", "batch", "callback", "idle", "connect", "routes", "stuck"},
	drive.ProtoFloor:  {"load", "idle"},
	drive.ProtoNATS:   {"load"},
	drive.ProtoMQTT:   {"load"},
}

// lacks says what a peer that speaks the protocol has no notion of.
var lacks = map[string][]string{"gorilla": {"batch", "callback"}}

// peer returns the peer of a name, or an error that wraps peers.ErrMissing.
func (f *flags) peer(name string) (p peers.Peer, err error) {
	p = peers.Peer{Name: name, Proto: drive.ProtoSubway}
	switch name {
	case "floor":
		p.Proto, p.Argv = drive.ProtoFloor, []string{filepath.Join(f.Out, "floor"), "{port}"}
	case "gateway":
		p.Argv = []string{f.Subway, "gateway", "--listen", "{addr}", "--data-dir", "{dir}"}
	case "gateway-memory":
		p.Argv = []string{f.Subway, "gateway", "--listen", "{addr}"}
	case "gorilla":
		p.Argv = []string{filepath.Join(f.Out, "gorilla"), "{addr}"}
	case "node":
		return peers.Node(f.Node)
	case "mosquitto":
		return peers.Mosquitto()
	case "nats":
		return peers.NATS()
	default:
		return p, fmt.Errorf("no peer %q", name)
	}
	if _, err := os.Stat(p.Argv[0]); err != nil {
		return p, fmt.Errorf("%s has not been built: %w", p.Argv[0], peers.ErrMissing)
	}
	return p, nil
}

// choose returns the peers in the order they were named, and which of them cannot take part. Only what is not known at all, or
// nobody left, is an error.
func (f *flags) choose() (chosen []peers.Peer, skipped []skip, err error) {
	for _, name := range f.Peers {
		p, err := f.peer(name)
		switch {
		case errors.Is(err, peers.ErrMissing):
			skipped = append(skipped, skip{name, err.Error()})
		case err != nil:
			return nil, nil, err
		case !slices.Contains(does[p.Proto], f.Mode) || slices.Contains(lacks[name], f.Mode):
			skipped = append(skipped, skip{name, "has no mode " + f.Mode})
		default:
			chosen = append(chosen, p)
		}
	}
	for _, text := range f.Peer {
		p, err := peers.Parse(text)
		if err != nil {
			return nil, nil, err
		}
		chosen = append(chosen, p)
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("nobody to measure: %v", skipped)
	}
	return chosen, skipped, nil
}
