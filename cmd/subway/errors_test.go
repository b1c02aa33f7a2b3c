package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// oneError checks that a run failed with one clear line on stderr and nothing on stdout.
func oneError(t *testing.T, env []string, code int, want string, args ...string) {
	t.Helper()
	stdout, stderr, got := finish(t, env, args...)
	if got != code || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "subway: ") || !strings.Contains(stderr, want) || stdout != "" {
		t.Errorf("subway %s: exit code %d, want %d\nstdout: %s\nstderr: %s\nwant one line with %q", strings.Join(args, " "), got, code, stdout, stderr, want)
	}
}

// TestWrongUsage ends with exit code 2 and one line.
func TestWrongUsage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, c := range []struct {
		args string
		want string
	}{
		{"bogus", "bogus"},
		{"gateway --bogus", "--bogus"},
		{"gateway --drain x", "--drain"},
		{"gateway --max-pending many", "--max-pending"},
		{"gateway --memory-limit 5XB", "is not a size"},
		{"gateway --orphan-responses maybe", "--orphan-responses"},
		{"gateway --log-level loud", "--log-level"},
		{"gateway --listen nonsense", "nonsense"},
		{"gateway --listen 0.0.0.0:0", "--allow-anonymous"},
		{"gateway --listen " + taken, "in use"},
		{"up --listen " + taken, "in use"},
		{"up --devices 0", "number of devices"},
		{"device", "--id"},
		{"device --id a/b", "is no device id"},
		{"device --id td-01 --id td-01", "given twice"},
		{"device --count 10001", "number of devices"},
		{"device --id td-01 --connect http://127.0.0.1", "ws://"},
		{"device --id td-01 --delay 3", "is not a delay"},
		{"device --id td-01 --delay 3s..1s", "is not a delay"},
		{"device --id td-01 --fail 2", "between 0 and 1"},
		{"device --id td-01 --fail much", "--fail"},
		{"device --id td-01 --parallel 0s", "--parallel"},
		{"send", "expected"},
		{"send td-01", "expected"},
		{"send td-01 X value", "value=80"},
		{"send td-01 X =1", "value=80"},
		{"send td-01 X a=1 a=2", "given twice"},
		{"send td-01 X commandType=Y", "given twice"},
		{"send td-01 X --priority URGENT", "--priority"},
		{"send td-01 X --wait=-1s", "negative"},
		{"send td-01 X --timeout 1500us", "whole milliseconds"},
		{"send td-01 X --gateway 127.0.0.1:1", "is no Gateway"},
		{"send td-01 X --gateway http://127.0.0.1:1", "connection refused"},
		{"--config /nonexistent/file gateway", "no such file"},
		{"--config / gateway", "directory"},
		{"gateway --debug-listen 1.2.3.4:99", "loopback"},
		{"gateway --max-pending=-1", "max-pending must not be negative"},
		{"gateway --ping-interval=-5s", "ping-interval must not be negative"},
		{"gateway --max-message 2GiB", "not supported"},
		{"gateway --memory-limit 1", "no room"},
	} {
		oneError(t, nil, 2, c.want, strings.Fields(c.args)...)
	}
	oneError(t, []string{"SUBWAY_DRAIN=soon"}, 2, "soon", "gateway", "--listen", "127.0.0.1:0")
}

// TestNotAGateway tells another server from a Gateway.
func TestNotAGateway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
			_ = c.Close()
		}
	}()
	oneError(t, nil, 2, "does not answer like a Gateway", "send", "td-01", "X", "--gateway", "http://"+l.Addr().String())
}

// TestHelp goes to stdout and is no failure.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"send", "--help"}, {"device", "--help"}, {"up", "--help"}, {"gateway", "--help"}} {
		stdout, stderr, code := finish(t, nil, args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage: subway") {
			t.Errorf("%v: exit code %d, stderr %s, stdout %s", args, code, stderr, stdout)
		}
	}
	stdout, _, _ := finish(t, nil, "send", "--help")
	for _, want := range []string{"0  COMPLETED", "1  FAILED", "2  wrong usage", "3  TIMEOUT", "4  not ended", "5  refused"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help of send does not say %q", want)
		}
	}
	if stdout, _, code := finish(t, nil, "version"); code != 0 || !strings.HasPrefix(stdout, "subway dev") {
		t.Errorf("version: %d, %s", code, stdout)
	}
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBadConfig refuses what is no setting.
func TestBadConfig(t *testing.T) {
	for text, want := range map[string]string{
		"gateway:\n  lisen: 127.0.0.1:0\n": "gateway.lisen",
		"lisen: 127.0.0.1:0\n":             "lisen",
		"gateway: 5\n":                     "gateway",
		"gateway: [\n":                     "config file",
		"- a\n- b\n":                       "config file",
		"gateway:\n\tlisten: x\n":          "config file",
		"gateway:\n  drain: soon\n":        "soon",
		"gateway:\n  drain: 5\n":           "drain",
	} {
		oneError(t, nil, 2, want, "gateway", "--config", configFile(t, text))
	}
}

// TestPrecedence lets a flag win over the environment over the file over the default. Each
// source names a loopback address of its own.
func TestPrecedence(t *testing.T) {
	both := configFile(t, "listen: 127.0.0.2:0\nmax-batch: 10\ngateway:\n  listen: 127.0.0.3:0\n")
	top := configFile(t, "listen: 127.0.0.2:0\ngateway:\n  # nothing yet\n")
	for _, c := range []struct {
		env  []string
		args string
		want string
	}{
		{nil, "--config " + top, "127.0.0.2:"},
		{nil, "--config " + both, "127.0.0.3:"},
		{[]string{"SUBWAY_CONFIG=" + both}, "", "127.0.0.3:"},
		{[]string{"SUBWAY_LISTEN=127.0.0.4:0"}, "--config " + both, "127.0.0.4:"},
		{[]string{"SUBWAY_LISTEN=127.0.0.4:0", "SUBWAY_CONFIG=" + both}, "--listen 127.0.0.5:0", "127.0.0.5:"},
	} {
		p := start(t, c.env, append([]string{"gateway"}, strings.Fields(c.args)...)...)
		if got := p.line("listening on "); !strings.Contains(got, c.want) {
			t.Errorf("%v %s: %s, want %s", c.env, c.args, got, c.want)
		}
	}
	// `gateway` is a section here and a flag there.
	path := configFile(t, "gateway:\n  listen: 127.0.0.2:0\nsend:\n  gateway: http://127.0.0.1:2\n")
	oneError(t, nil, 2, "http://127.0.0.1:2", "send", "td-01", "X", "--config", path)
	path = configFile(t, "gateway:\n  listen: 127.0.0.2:0\n")
	oneError(t, []string{"SUBWAY_GATEWAY=http://127.0.0.1:3"}, 2, "http://127.0.0.1:3", "send", "td-01", "X", "--config", path)
}
