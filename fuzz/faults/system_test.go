package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	numEdges       = 2
	devicesPerEdge = 5
)

// shape is what a fault wants to be different in the system.
type shape struct {
	files   int      // limit of open files of the Gateway; 0: as it is
	stepped bool     // the Gateway and the first edge have wall clocks of their own
	proxied bool     // the first edge has a proxy before it
	disk    string   // size of the Gateway's disk; "": it is not a small one
	payload int      // bytes that a command carries along, at most
	gateway []string // more flags of the Gateway
	long    bool     // it takes so long that answers may come too late
	deaf    bool     // callbacks may become dead letters
}

// system is a Gateway, edges, devices, a receiver of callbacks and a load, on loopback addresses of their
// own: nobody else takes their ports while a process is down.
type system struct {
	t     *testing.T
	shape shape
	seed  uint64
	rnd   *rand.Rand // of the fault
	host  string
	dirs  struct {
		gateway string
		edge    [numEdges]string
	}
	off  time.Duration // of the stepped clocks
	http *http.Client
	book *ledger

	gateway  *process
	edges    [numEdges]*process
	devices  [numEdges]*process
	receiver *receiver
	proxy    *proxy
	load     *load
	dead     int // dead letters that were sent again
}

// numHosts makes each system's host another.
var numHosts atomic.Int32

func newSystem(t *testing.T, sh shape, seed uint64) *system {
	t.Helper()
	pid := os.Getpid()
	s := &system{
		t: t, shape: sh, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), book: newLedger(!sh.long),
		host: fmt.Sprintf("127.%d.%d.%d", 1+pid>>8&0x7f, pid&0xff, numHosts.Add(1)),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: numWorkers + 2}},
	}
	t.Cleanup(s.http.CloseIdleConnections)
	s.dirs.gateway = t.TempDir()
	if sh.disk != "" {
		smallDisk(t, s.dirs.gateway, sh.disk)
	}
	s.receiver = newReceiver(t, s.host+":18090", s.book)
	s.startGateway()
	if sh.proxied {
		s.proxy = newProxy(t, s.host+":18091", s.gatewayAddr())
	}
	for i := range numEdges {
		s.dirs.edge[i] = t.TempDir()
		s.startEdge(i)
		s.startDevices(i)
	}
	s.complete()
	s.load = newLoad(s)
	return s
}

func deviceKind(edge int) string        { return string(rune('a' + edge)) }
func (s *system) gatewayAddr() string   { return s.host + ":18081" }
func (s *system) edgeAddr(i int) string { return fmt.Sprintf("%s:%d", s.host, 18083+i) }
func (s *system) callbackURL() string   { return "http://" + s.receiver.addr + "/{request_ref}" }
func (s *system) deviceID(n int) string {
	return fmt.Sprintf("%s-%02d", deviceKind(n%numEdges), 1+n/numEdges)
}

// startGateway starts it, on the directory that it had.
func (s *system) startGateway() {
	s.t.Helper()
	s.gateway = spawn(s.t, launch{
		name: "gateway", ready: true, line: func(string) {}, files: s.shape.files, stepped: s.shape.stepped, off: s.off,
		args: append([]string{"gateway", "--listen", s.gatewayAddr(), "--data-dir", s.dirs.gateway, "--ping-interval", "1s", "--silence-timeout", "4s", "--drain", "2s"}, s.shape.gateway...),
	})
}

func (s *system) startEdge(i int) {
	s.t.Helper()
	at := s.gatewayAddr()
	if s.proxy != nil && i == 0 {
		at = s.proxy.lis.Addr().String()
	}
	s.edges[i] = spawn(s.t, launch{
		name: fmt.Sprintf("edge-%d", i), ready: true, line: func(string) {}, stepped: s.shape.stepped && i == 0, off: s.off,
		args: []string{
			"edge", "--id", fmt.Sprintf("edge-%d", i), "--gateway", "ws://" + at + "/ws", "--data-dir", s.dirs.edge[i], "--listen", s.edgeAddr(i),
			"--retry-first", "200ms", "--retry-slow", "1s", "--heartbeat", "2s", "--store-limit", "1GiB",
		},
	})
}

// startDevices starts those of an edge.
func (s *system) startDevices(i int) {
	s.t.Helper()
	s.devices[i] = spawn(s.t, launch{name: fmt.Sprintf("devices-%d", i), line: s.report, args: []string{
		"device", "--json", "--count", fmt.Sprint(devicesPerEdge), "--id-prefix", deviceKind(i), "--connect", "ws://" + s.edgeAddr(i) + "/ws",
		"--delay", "0s..60ms", "--progress", "1", "--fail", "0.05", "--parallel", "4", "--status-interval", "5s",
	}})
}

// report takes what a device says that it did.
func (s *system) report(line string) {
	var r struct{ RequestRef, Outcome string }
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		s.book.complain("a device says %q", line)
		return
	}
	s.book.with(r.RequestRef, func(a *account) {
		switch r.Outcome {
		case "COMPLETED", "FAILED", "CANCELLED":
			a.ran++
		case "REPEATED":
			a.again++
		case "OVERLOADED":
			a.shed++
		}
	})
}

// call makes one request of the API.
func (s *system) call(method, path, body string, within time.Duration) (status int, answer []byte, err error) {
	req, err := http.NewRequest(method, "http://"+s.gatewayAddr()+path, strings.NewReader(body))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	client := *s.http
	client.Timeout = within
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// get asks until it is answered with 200, and reads the answer.
func (s *system) get(path string, into any) {
	s.t.Helper()
	until(s.t, "an answer to GET "+path, func() bool {
		status, answer, err := s.call("GET", path, "", answerWithin)
		return err == nil && status == 200 && json.Unmarshal(answer, into) == nil
	})
}

// complete waits until every device can be reached.
func (s *system) complete() {
	s.t.Helper()
	until(s.t, "all devices to be there", func() bool {
		var list struct{ Devices []struct{ Connection string } }
		s.get("/api/devices?status=ONLINE", &list)
		return len(list.Devices) == numEdges*devicesPerEdge
	})
}

// more waits until so many more commands have been accepted.
func (s *system) more(n int) {
	s.t.Helper()
	before, _ := s.book.counts()
	until(s.t, "more commands to be accepted", func() bool {
		now, _ := s.book.counts()
		return now >= before+n
	})
}

// flows waits until so many more commands have been called back: the system works.
func (s *system) flows(n int) {
	s.t.Helper()
	_, before := s.book.counts()
	until(s.t, "more callbacks", func() bool {
		_, now := s.book.counts()
		return now >= before+n
	})
}

// pauses stops a process for a time.
func (s *system) pauses(p *process, d time.Duration) {
	p.signal(syscall.SIGSTOP)
	<-time.After(d) // the fault is a time in which nothing happens
	p.signal(syscall.SIGCONT)
}

// record asks for a command's record; nil: there is none.
func (s *system) record(ref string) (r *record) {
	s.t.Helper()
	until(s.t, "the record of "+ref, func() bool {
		status, answer, err := s.call("GET", "/api/commands/"+ref, "", answerWithin)
		if err != nil || status != 200 {
			return err == nil && status == 404
		}
		r = new(record)
		return json.Unmarshal(answer, r) == nil
	})
	return r
}

// settle waits until nothing more is to come for any command.
func (s *system) settle() {
	s.t.Helper()
	open := s.book.refs()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%d are open, among them:\n%s", len(open), s.book.describe(open[:min(len(open), 10)]))
		}
	}()
	until(s.t, "all to be quiet", func() bool {
		s.resend()
		left := open[:0]
		for _, ref := range open {
			if !s.book.settled(ref, s.record(ref)) {
				left = append(left, ref)
			}
		}
		open = left
		if s.t.Failed() {
			s.t.FailNow()
		}
		return len(open) == 0
	})
}

// resend has dead letters sent again, as an operator does.
func (s *system) resend() {
	var list struct{ Callbacks []struct{ ID string } }
	s.get("/api/callbacks?state=dead&limit=1000", &list)
	for _, c := range list.Callbacks {
		if status, _, err := s.call("POST", "/api/callbacks/"+c.ID+"/retry", "", answerWithin); err == nil && status == 200 {
			s.dead++
		}
	}
}

// balance ends the load and waits for the end of everything that was accepted; then the books must balance,
// and what they rest on must be there after one more crash.
func (s *system) balance() totals {
	s.t.Helper()
	s.load.stop()
	s.complete()
	s.settle()
	s.gateway.kill()
	s.startGateway()
	for _, ref := range s.book.refs() {
		s.book.reread(ref, s.record(ref))
	}
	s.complete()
	for i := range numEdges {
		s.devices[i].stop()
		s.edges[i].stop()
	}
	s.gateway.stop()
	sum, wrong := s.book.balance()
	const shown = 20
	for _, w := range wrong[:min(len(wrong), shown)] {
		s.t.Error(w)
	}
	if len(wrong) > shown {
		s.t.Errorf("and %d more", len(wrong)-shown)
	}
	if s.dead > 0 && !s.shape.deaf {
		s.t.Errorf("%d callbacks became dead letters", s.dead)
	}
	return sum
}
