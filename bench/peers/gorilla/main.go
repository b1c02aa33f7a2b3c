// Command gorilla is a peer to compare with: the gateway one writes in an afternoon. A goroutine per connection and one for its
// writes, gorilla/websocket, encoding/json, net/http, two maps under a mutex. It does REGISTER, COMMAND and COMMAND_RESPONSE and
// POST /api/commands (with ?wait=) of PROTOCOL.md, well enough to be measured, and nothing else: no timeouts, no limits.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// queued is how many messages may wait for one connection; beyond it the sender waits.
const queued = 1024

type gateway struct {
	mu      sync.Mutex
	routes  map[string]*session // device -> session
	pending map[string]waiter   // requestRef -> who asked
	upgrade websocket.Upgrader
}

// waiter is a Backend's session, or the channel of an HTTP caller.
type waiter struct {
	session *session
	answer  chan []byte
}

type session struct {
	id    string
	queue chan []byte
	done  chan struct{}
}

// message holds the members a gateway reads.
type message struct {
	Type       string            `json:"type"`
	ClientID   string            `json:"clientId"`
	ClientType string            `json:"clientType"`
	Devices    []json.RawMessage `json:"devices"`
	RequestRef string            `json:"requestRef"`
	Target     string            `json:"targetClientId"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gorilla 127.0.0.1:PORT")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	g := &gateway{routes: map[string]*session{}, pending: map[string]waiter{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", g.serveWebSocket)
	mux.HandleFunc("POST /api/commands", g.serveCommand)
	mux.HandleFunc("GET /metrics", serveMetrics)
	log.Fatal(http.Serve(listener, mux))
}

func serveMetrics(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(w, "go_memstats_mallocs_total %d\n", m.Mallocs)
}

func (g *gateway) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := g.upgrade.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	s := &session{queue: make(chan []byte, queued), done: make(chan struct{})}
	go func() {
		for {
			select {
			case msg := <-s.queue:
				if conn.WriteMessage(websocket.TextMessage, msg) != nil {
					conn.Close()
				}
			case <-s.done:
				return
			}
		}
	}()
	defer conn.Close()
	defer close(s.done)
	for {
		_, text, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if err := g.take(s, text); err != nil {
			s.send(fmt.Appendf(nil, `{"type":"ERROR","code":"INVALID_MESSAGE","message":%q}`, err.Error()))
		}
	}
}

func (s *session) send(msg []byte) {
	select {
	case s.queue <- msg:
	case <-s.done:
	}
}

func (g *gateway) take(s *session, text []byte) error {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	switch m.Type {
	case "REGISTER":
		g.register(s, &m)
	case "COMMAND":
		text = fmt.Appendf(text[:len(text)-1], `,"sourceClientId":%q}`, s.id)
		return g.command(text, m.Target, m.RequestRef, waiter{session: s})
	case "COMMAND_RESPONSE":
		g.finish(m.RequestRef, text)
	default:
		return errors.New("unknown type")
	}
	return nil
}

func (g *gateway) register(s *session, m *message) {
	g.mu.Lock()
	s.id = m.ClientID
	if m.ClientType == "DEVICE" {
		g.routes[s.id] = s
	}
	for _, device := range m.Devices {
		var id string
		if json.Unmarshal(device, &id) == nil {
			g.routes[id] = s
		}
	}
	g.mu.Unlock()
	ack, _ := json.Marshal(map[string]any{"type": "REGISTER_ACK", "clientId": s.id, "clientType": m.ClientType,
		"status": "REGISTERED", "epoch": 1, "heartbeatInterval": 30000, "version": "1.0"})
	s.send(ack)
}

func (g *gateway) command(text []byte, target, ref string, from waiter) error {
	g.mu.Lock()
	to := g.routes[target]
	if to != nil {
		g.pending[ref] = from
	}
	g.mu.Unlock()
	if to == nil {
		return fmt.Errorf("no route for %q", target)
	}
	to.send(text)
	return nil
}

func (g *gateway) finish(ref string, text []byte) {
	g.mu.Lock()
	from, ok := g.pending[ref]
	delete(g.pending, ref)
	g.mu.Unlock()
	switch {
	case ok && from.session != nil:
		from.session.send(text)
	case ok && from.answer != nil:
		from.answer <- text
	}
}

func (g *gateway) serveCommand(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Target  string          `json:"target_client_id"`
		Command json.RawMessage `json:"command"`
		Ref     string          `json:"request_ref"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	from := waiter{answer: make(chan []byte, 1)}
	text, err := json.Marshal(map[string]any{"type": "COMMAND", "requestRef": in.Ref, "targetClientId": in.Target, "command": in.Command})
	if err == nil {
		err = g.command(text, in.Target, in.Ref, from)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	wait, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	if wait > 0 {
		timer := time.NewTimer(time.Duration(wait) * time.Millisecond)
		defer timer.Stop()
		select {
		case text := <-from.answer:
			_, _ = w.Write(text)
			return
		case <-timer.C:
		}
	}
	fmt.Fprintf(w, `{"success":true,"requestRef":%q,"message":"Command accepted for processing"}`, in.Ref)
}
