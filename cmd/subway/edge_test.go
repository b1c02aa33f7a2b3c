package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// runEdge starts an edge and waits for its address.
func runEdge(t *testing.T, gateway string, args ...string) (p *process, address string) {
	t.Helper()
	p = start(t, nil, append([]string{"edge", "--id", "edge-1", "--gateway", "ws://" + gateway + "/ws"}, args...)...)
	return p, strings.TrimPrefix(p.line("listening on "), "listening on ")
}

// TestEdge serves a device, says where it listens, and ends in order.
func TestEdge(t *testing.T) {
	_, gateway := startGateway(t)
	dir := t.TempDir()
	e, address := runEdge(t, gateway, "--data-dir", dir)
	if b, err := os.ReadFile(filepath.Join(dir, "listen")); err != nil || strings.TrimSpace(string(b)) != address {
		t.Errorf("the file holds %q, %v", b, err)
	}
	startDevice(t, address, "--id", "td-01")
	until(t, "the route", func() bool {
		_, body := request(t, "GET", "http://"+gateway+"/api/devices/td-01", "")
		return strings.Contains(body, `"edgeId":"edge-1"`)
	})
	if stdout, stderr, code := finish(t, nil, "send", "--gateway", "http://"+gateway, "td-01", "SET_X", "value=1", "--wait", "5s"); code != 0 || !strings.Contains(stdout, "COMPLETED") {
		t.Errorf("send: %d %s %s", code, stdout, stderr)
	}
	if _, stderr, code := finish(t, nil, "edge", "--id", "edge-2", "--data-dir", dir); code != exitUsage || !strings.Contains(stderr, "in use by another process") {
		t.Errorf("a second edge with the same directory: %d %s", code, stderr)
	}
	e.signal(syscall.SIGTERM)
	if code := e.ends(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, e.stderr())
	}
}

// TestEdgeHangup tries the Gateway at once.
func TestEdgeHangup(t *testing.T) {
	e, address := runEdge(t, "127.0.0.1:1", "--data-dir", t.TempDir(), "--retry-first", "1h")
	e.logged("out of reach")
	e.signal(syscall.SIGHUP)
	e.logged("the link is tried now")
	until(t, "a second attempt", func() bool { return strings.Count(e.stderr(), "out of reach") >= 2 })
	if status, body := request(t, "GET", "http://"+address+"/readyz", ""); status != 503 || !strings.Contains(body, "OFFLINE") {
		t.Errorf("%d %s", status, body)
	}
	e.signal(syscall.SIGTERM)
	if code := e.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestEdgeUsage refuses what cannot work, in one line.
func TestEdgeUsage(t *testing.T) {
	for part, args := range map[string][]string{
		"--id":                {"--data-dir", t.TempDir()},
		"--data-dir":          {"--id", "e"},
		"is not an id":        {"--id", "e e", "--data-dir", t.TempDir()},
		"there is no adapter": {"--id", "e", "--data-dir", t.TempDir(), "--adapter", "pigeon=127.0.0.1:0"},
		"not a loopback":      {"--id", "e", "--data-dir", t.TempDir(), "--listen", "0.0.0.0:0"},
		"adapter line":        {"--id", "e", "--data-dir", t.TempDir(), "--adapter", "line=0.0.0.0:0"},
		"should look like":    {"--id", "e", "--data-dir", t.TempDir(), "--gateway", "http://x"},
		"number of devices":   {"--id", "e", "--data-dir", t.TempDir(), "--max-devices", "9000"},
		"is not a size":       {"--id", "e", "--data-dir", t.TempDir(), "--store-limit", "many"},
	} {
		_, stderr, code := finish(t, nil, append([]string{"edge"}, args...)...)
		if code != exitUsage || !strings.Contains(stderr, part) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}
