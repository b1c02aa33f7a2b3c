package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigValues: an empty setting is none, and a list or a map takes the form of its
// flag.
func TestConfigValues(t *testing.T) {
	dir := t.TempDir()
	p := start(t, nil, "gateway", "--config", configFile(t, "gateway:\n  listen: 127.0.0.1:0\n  data-dir:\n  callback-deny: [10.0.0.0/8, 192.168.0.0/16]\n"))
	p.line("listening on ")
	if _, err := os.Stat("<nil>"); err == nil {
		t.Error("an empty data-dir made a directory named <nil>")
	}
	for _, adapters := range []string{"[line=127.0.0.1:0, mqtt=127.0.0.1:0]", "{line: 127.0.0.1:0, mqtt: 127.0.0.1:0}"} {
		text := "edge:\n  id: edge-1\n  gateway: [ws://127.0.0.1:1/ws, ws://127.0.0.1:2/ws]\n  data-dir: " + filepath.Join(dir, "edge") + "\n  adapter: " + adapters + "\n"
		p := start(t, nil, "edge", "--config", configFile(t, text))
		p.line("line on ")
		p.line("mqtt on ")
		p.signal(15)
		p.ends()
	}
}

// TestDebugListen serves profiles on a port of its own.
func TestDebugListen(t *testing.T) {
	address := "127.0.0.1:26061"
	p := start(t, nil, "gateway", "--listen", "127.0.0.1:0", "--debug-listen", address)
	p.line("listening on ")
	resp, err := http.Get("http://" + address + "/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "goroutine profile") {
		t.Errorf("%d %.80q %v", resp.StatusCode, body, err)
	}
}
