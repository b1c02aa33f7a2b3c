package loadgen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// scripted is a gateway for tests: just enough of PROTOCOL.md, and able to do one thing
// wrong, to one command in twenty.
type scripted struct {
	*httptest.Server
	fault string                                // what it does wrong; "": nothing
	delay func(now time.Time) (d time.Duration) // before a command is handed on

	mu       sync.Mutex
	edges    map[string]*party // by id
	route    map[string]*party // by device
	backends map[string]*party
	commands map[string]*command
	count    int
	line     chan delayed // commands that wait, in their order
	parties  sync.WaitGroup
}

type delayed struct {
	*command
	until time.Time
}

type party struct {
	conn net.Conn
	id   string
	mu   sync.Mutex
	held *command // waits to be overtaken by the next of its source; under scripted.mu
}

// send writes a message; a connection that is gone takes none.
func (p *party) send(msg []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = wsutil.WriteServerText(p.conn, msg)
}

type command struct {
	envelope
	source   *party // nil: HTTP
	raw      []byte
	unlucky  bool   // the fault is done to it
	status   string // its end
	held     []byte // a progress that waits to be overtaken
	answered bool
	ended    chan struct{} // closed when status is set
}

type envelope struct {
	Type, ClientID, ClientType string
	RequestRef, TargetClientID string
	Command, Result, Progress  json.RawMessage
	Status, Callback           string
	Devices                    []string
	EdgeInfo                   struct{ EdgeID string }
	Target                     string `json:"target_client_id"`
	Ref                        string `json:"request_ref"`
	URL                        string `json:"callback_url"`
}

func newScripted(t *testing.T, fault string) *scripted {
	s := &scripted{
		fault: fault, edges: map[string]*party{}, route: map[string]*party{}, backends: map[string]*party{},
		commands: map[string]*command{}, delay: func(time.Time) time.Duration { return 0 }, line: make(chan delayed, 10_000),
	}
	s.parties.Go(func() {
		for c := range s.line {
			<-time.After(time.Until(c.until)) // the delay that the test scripted
			s.hand(c.command)
		}
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", s.webSocket)
	mux.HandleFunc("POST /api/commands", s.post)
	mux.HandleFunc("GET /api/commands/{ref}", s.get)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"scripted"}`) })
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	s.Server = httptest.NewServer(mux)
	s.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64 // or callbacks dial anew all the time
	t.Cleanup(func() {
		s.Close()
		close(s.line)
		s.parties.Wait()
	})
	return s
}

func (s *scripted) webSocket(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	s.parties.Add(1)
	defer s.parties.Done()
	defer conn.Close()
	p := &party{conn: conn}
	for {
		msg, err := wsutil.ReadClientText(conn)
		if err != nil {
			return
		}
		var m envelope
		if json.Unmarshal(msg, &m) == nil && !s.message(p, &m, msg) {
			return
		}
	}
}

// message acts on a message; false ends the connection.
func (s *scripted) message(p *party, m *envelope, msg []byte) bool {
	switch m.Type {
	case "REGISTER":
		s.register(p, m)
	case "UNREGISTER":
		_ = ws.WriteFrame(p.conn, ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "goodbye")))
		return false
	case "COMMAND":
		s.accept(&command{envelope: *m, source: p, raw: msg})
	case "PROGRESS_UPDATE":
		s.progress(m, msg)
	case "COMMAND_RESPONSE":
		s.response(m, msg)
	}
	return true
}

func (s *scripted) register(p *party, m *envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.id = m.ClientID
	switch m.ClientType {
	case "BACKEND":
		s.backends[p.id] = p
	case "DEVICE":
		s.route[p.id] = p
	case "EDGE":
		s.edges[p.id] = p
		for _, d := range m.Devices {
			s.route[d] = p
		}
	}
	p.send(fmt.Appendf(nil, `{"type":"REGISTER_ACK","clientId":%q,"status":"REGISTERED"}`, p.id))
}

// accept files a command and hands it to its edge, after the delay.
func (s *scripted) accept(c *command) {
	s.mu.Lock()
	s.count++
	c.unlucky = s.fault != "" && s.count%20 == 0 && s.count <= 200 // none so late that nothing comes after it
	c.ended = make(chan struct{})
	s.commands[c.RequestRef] = c
	s.mu.Unlock()
	if d := s.delay(time.Now()); d > 0 {
		s.line <- delayed{c, time.Now().Add(d)}
		return
	}
	s.hand(c)
}

func (s *scripted) is(c *command, fault string) bool { return c.unlucky && s.fault == fault }

func (s *scripted) hand(c *command) {
	if s.is(c, "lose the command") {
		return
	}
	s.mu.Lock()
	edge, raw := s.route[c.TargetClientID], c.raw
	held := edge.held
	switch {
	case s.is(c, "misroute"):
		edge = s.otherThan(s.edges, edge)
	case s.is(c, "alter the command"):
		raw = bytes.Replace(raw, []byte(`"value":"`), []byte(`"value":"!`), 1)
	case s.is(c, "invent an end"):
		c.status = "COMPLETED"
		close(c.ended)
		s.mu.Unlock()
		s.tell(c, fmt.Appendf(nil, `{"type":"COMMAND_RESPONSE","requestRef":%q,"status":"COMPLETED","result":{"value":%s}}`, c.RequestRef, c.value()))
		return
	case s.is(c, "overtake") && held == nil && c.source != nil:
		edge.held = c
		s.mu.Unlock()
		return
	}
	if held != nil && held.source == c.source {
		edge.held = nil
	} else {
		held = nil
	}
	s.mu.Unlock()
	if s.is(c, "refuse what was sent") {
		s.tell(c, fmt.Appendf(nil, `{"type":"ERROR","requestRef":%q,"code":"EDGE_UNAVAILABLE","message":"m"}`, c.RequestRef))
	}
	if s.is(c, "invent progress") { // before the device can report
		s.tell(c, fmt.Appendf(nil, `{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":33.333}`, c.RequestRef))
	}
	edge.send(raw)
	if held != nil {
		edge.send(held.raw)
	}
	if s.is(c, "deliver twice") {
		edge.send(raw)
	}
}

// otherThan finds another party; the caller holds s.mu.
func (s *scripted) otherThan(all map[string]*party, p *party) *party {
	for _, other := range all {
		if other != p {
			return other
		}
	}
	return p
}

// value is that of the command, in JSON.
func (c *command) value() []byte {
	var v struct{ Value json.RawMessage }
	_ = json.Unmarshal(c.Command, &v)
	return v.Value
}

func (s *scripted) progress(m *envelope, msg []byte) {
	s.mu.Lock()
	c := s.commands[m.RequestRef]
	first := !c.answered
	c.answered = true
	if first && (s.is(c, "reorder progress") || s.is(c, "call back before progress")) {
		c.held = msg
	}
	held := c.held
	s.mu.Unlock()
	switch {
	case first && s.is(c, "lose progress"):
		return
	case first && s.is(c, "reorder progress"):
		return
	case first && s.is(c, "call back before progress"):
		s.tell(c, msg)
		return
	}
	s.tell(c, msg)
	if s.is(c, "reorder progress") && held != nil {
		s.tell(c, held)
		s.mu.Lock()
		c.held = nil
		s.mu.Unlock()
	}
	s.call(c, "PROGRESS_UPDATE", "IN_PROGRESS", m.Progress, nil, "p")
	if s.is(c, "call back progress twice") {
		s.call(c, "PROGRESS_UPDATE", "IN_PROGRESS", m.Progress, nil, "p")
	}
}

// response ends a command once, and tells so.
func (s *scripted) response(m *envelope, msg []byte) {
	s.mu.Lock()
	c := s.commands[m.RequestRef]
	if c == nil || c.status != "" || s.is(c, "lose the response") {
		s.mu.Unlock()
		return
	}
	c.status, c.Result = m.Status, m.Result
	if s.is(c, "answer another result") {
		c.Result = []byte(`{"value":"another"}`)
	}
	close(c.ended)
	other := s.otherThan(s.backends, c.source)
	s.mu.Unlock()
	switch {
	case s.is(c, "lose the final"):
		return
	case s.is(c, "tell another end"):
		msg = bytes.Replace(msg, []byte(`"COMPLETED"`), []byte(`"FAILED"`), 1)
	case s.is(c, "cancel by itself"):
		msg = fmt.Appendf(nil, `{"type":"ERROR","code":"CANCELLED","message":"cancelled","requestRef":%q}`, c.RequestRef)
	case s.is(c, "time out at once"):
		msg = fmt.Appendf(nil, `{"type":"ERROR","code":"TIMEOUT","message":"too late","requestRef":%q}`, c.RequestRef)
	case s.is(c, "alter the result"):
		msg = bytes.Replace(msg, []byte(`"value":"`), []byte(`"value":"!`), 1)
	case s.is(c, "tell another Backend"):
		other.send(msg)
		return
	case s.is(c, "tell two Backends"):
		other.send(msg)
	}
	s.tell(c, msg)
	switch {
	case s.is(c, "end twice"):
		s.tell(c, msg)
	case s.is(c, "progress after the final"):
		s.tell(c, fmt.Appendf(nil, `{"type":"PROGRESS_UPDATE","requestRef":%q,"progress":66.667}`, m.RequestRef))
	}
	s.callEnd(c)
}

// callEnd makes the final callback.
func (s *scripted) callEnd(c *command) {
	end, result := c.status, []byte(c.Result)
	switch {
	case s.is(c, "lose the callback"):
		return
	case s.is(c, "call back another end"):
		end = "TIMEOUT"
	case s.is(c, "alter the callback"):
		result = []byte(`{"value":"!"}`)
	}
	s.call(c, "COMMAND_RESPONSE", end, nil, result, "f")
	switch {
	case s.is(c, "call twice"):
		s.call(c, "COMMAND_RESPONSE", end, nil, result, "f")
	case s.is(c, "call under two ids"):
		s.call(c, "COMMAND_RESPONSE", end, nil, result, "g")
	case s.is(c, "call back before progress"):
		s.call(c, "PROGRESS_UPDATE", "IN_PROGRESS", []byte("33.333"), nil, "p")
	}
}

// tell sends a notice to the command's Backend, if it has one.
func (s *scripted) tell(c *command, msg []byte) {
	if c.source != nil {
		c.source.send(msg)
	}
}

// call makes a callback, and waits for its answer.
func (s *scripted) call(c *command, kind, status string, progress, result []byte, id string) {
	if c.Callback == "" {
		return
	}
	url := strings.ReplaceAll(c.Callback, "{request_ref}", c.RequestRef)
	body := fmt.Appendf(nil, `{"requestRef":%q,"status":%q,"type":%q,"targetClientId":%q`, c.RequestRef, status, kind, c.TargetClientID)
	if progress != nil {
		body = fmt.Appendf(body, `,"progress":%s`, progress)
	}
	if result != nil {
		body = fmt.Appendf(body, `,"result":%s`, result)
	}
	req, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(append(body, '}')))
	req.Header.Set("X-Callback-Id", c.RequestRef+"-"+id)
	req.Header.Set("X-Callback-Attempt", "1/3")
	req.Header.Set("Content-Type", "application/json")
	if resp, err := s.Client().Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func (s *scripted) post(w http.ResponseWriter, r *http.Request) {
	var m envelope
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.RequestRef, m.TargetClientID, m.Callback = m.Ref, m.Target, m.URL
	raw := fmt.Appendf(nil, `{"type":"COMMAND","requestRef":%q,"targetClientId":%q,"command":%s}`, m.Ref, m.Target, m.Command)
	c := &command{envelope: m, raw: raw}
	s.accept(c)
	if wait, err := strconv.Atoi(r.URL.Query().Get("wait")); err == nil {
		select {
		case <-c.ended:
		case <-time.After(time.Duration(wait) * time.Millisecond):
		}
		s.status(w, m.Ref)
		return
	}
	fmt.Fprintf(w, `{"success":true,"requestRef":%q,"message":"Command accepted for processing"}`, m.Ref)
}

func (s *scripted) get(w http.ResponseWriter, r *http.Request) { s.status(w, r.PathValue("ref")) }

// status tells what the gateway knows of a command.
func (s *scripted) status(w http.ResponseWriter, ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.commands[ref]
	switch {
	case c == nil:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"success":false,"error":"no such command","code":"COMMAND_NOT_FOUND"}`)
	case c.status == "":
		fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":"DISPATCHED"}`, ref)
	case c.Result == nil:
		fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":%q}`, ref, c.status)
	default:
		fmt.Fprintf(w, `{"success":true,"requestRef":%q,"status":%q,"result":%s}`, ref, c.status, c.Result)
	}
}
