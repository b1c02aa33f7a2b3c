package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a run does is tested beside the package; here is what the command adds to it.
func TestLoadgenWritesReports(t *testing.T) {
	_, address := startGateway(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	stdout, stderr, code := finish(t, nil, "loadgen", "steady", "--gateway", "http://"+address, "--edges", "3", "--devices", "2", "--rate", "100",
		"--http-rate", "50", "--time", "1200ms", "--warmup", "100ms", "--out", dir)
	if code != 0 || !strings.Contains(stdout, "The books balance") || !strings.Contains(stderr, "/s sent") {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	for name, part := range map[string]string{
		"report.txt": "The books balance", "report.html": "</html>", "report.json": `"balanced": true`, "vegeta.txt": "Latencies",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, part, text)
		}
	}
}

func TestLoadgenUsage(t *testing.T) {
	for _, tc := range []struct {
		args, text string
		code       int
	}{
		{"--list", "mixed", 0},
		{"churn --show --edges 7", "edges: 7", 0},
		{"nothing", "no scenario", exitUsage},
		{"./nothing.yaml", "no such file", exitUsage},
		{"ramp --time 3s", "--time", exitUsage},
		{"steady --edges=-1 --show", "fleet.edges", exitUsage},
		{"steady --gateway http://127.0.0.1:1", "cannot be reached", exitUsage},
		{"steady --gateway nonsense", "http://HOST:PORT", exitUsage},
		{"steady --edges=-1", "fleet.edges", exitUsage},
	} {
		stdout, stderr, code := finish(t, nil, append([]string{"loadgen"}, strings.Fields(tc.args)...)...)
		if code != tc.code || !strings.Contains(stdout+stderr, tc.text) {
			t.Errorf("loadgen %s: exit code %d, want %d and %q\n%s%s", tc.args, code, tc.code, tc.text, stdout, stderr)
		}
	}
}
