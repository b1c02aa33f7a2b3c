package peers

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// mosquittoConfig is what the broker is started with.
//
//go:embed mosquitto/mosquitto.conf
var mosquittoConfig string

// Node returns the gateway of source (the directory peers/node), or an error that wraps ErrMissing where there is no node or its
// packages have not been installed.
func Node(source string) (Peer, error) {
	p := Peer{Name: "node", Proto: "subway"}
	node, err := exec.LookPath("node")
	if err != nil {
		return p, fmt.Errorf("no node in PATH: %w", ErrMissing)
	}
	for _, name := range []string{"ws", "express"} {
		if _, err := os.Stat(filepath.Join(source, "node_modules", name, "package.json")); err != nil {
			return p, fmt.Errorf("no %s in peers/node/node_modules, run npm ci there: %w", name, ErrMissing)
		}
	}
	// express does less for errors and templates in production; env execs, so the pid stays.
	p.Argv = []string{"env", "NODE_ENV=production", node, filepath.Join(source, "gateway.mjs"), "{addr}"}
	return p, nil
}

// Mosquitto returns the MQTT broker, or an error that wraps ErrMissing. Distributions put it where only root looks.
func Mosquitto() (Peer, error) {
	return installed(Peer{Name: "mosquitto", Proto: "mqtt", Argv: []string{"mosquitto", "-c", "{config}"}, Config: mosquittoConfig})
}

// NATS returns nats-server, or an error that wraps ErrMissing.
func NATS() (Peer, error) {
	return installed(Peer{Name: "nats", Proto: "nats", Argv: []string{"nats-server", "-a", "127.0.0.1", "-p", "{port}"}})
}

// installed puts the program's path in place of its name.
func installed(p Peer) (Peer, error) {
	name := p.Argv[0]
	for _, at := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(at); err == nil {
			p.Argv = append([]string{path}, p.Argv[1:]...)
			return p, nil
		}
	}
	return p, fmt.Errorf("no %s in PATH: %w", name, ErrMissing)
}
