package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"subway/bench/drive"
	"subway/bench/peers"
)

// bodyMax bounds an answer of the gateway: a profile has some 100 KB.
const bodyMax = 64 << 20

// gateway is a gateway that runs, and its debug port.
type gateway struct {
	*peers.Process
	debug string // http://ADDRESS
}

// start runs a gateway of its own for one phase, with the journal's directory as `compare` gives it, and reads its version.
func (b *bench) start(ctx context.Context) (*gateway, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("no port for profiles: %w", err)
	}
	debug := l.Addr().String()
	l.Close()
	argv := []string{b.flags.Subway, "gateway", "--listen", "{addr}", "--data-dir", "{dir}", "--debug-listen", debug}
	p, err := peers.Start(ctx, peers.Peer{Name: "gateway", Proto: drive.ProtoSubway, Argv: argv}, b.serverCPU)
	if err != nil {
		return nil, err
	}
	g := &gateway{Process: p, debug: "http://" + debug}
	text, err := call(ctx, http.MethodGet, g.url()+"/version")
	if err == nil {
		err = json.Unmarshal(text, &b.sum.Gateway)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("version: %w", err), g.Stop())
	}
	return g, nil
}

// with runs do with a fresh gateway.
func (b *bench) with(ctx context.Context, do func(*gateway) error) error {
	g, err := b.start(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(g), g.Stop())
}

func (g *gateway) url() string { return "http://" + g.Addr.String() }

// number reads a value of /metrics or of the runtime's figures behind a heap profile: a line of name, separator and number.
func number(text []byte, name, separator string) (float64, error) {
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+separator); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

// call makes one request and returns the body of a 200.
func call(ctx context.Context, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, bodyMax))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.200s", method, url, answer.Status, body)
	}
	return body, err
}
