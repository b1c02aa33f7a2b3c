package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"subway/api/contract"
)

// tales is what the parties of a kill loop were told of each command, over all the lives
// of the Gateway.
type tales struct {
	t       testing.TB
	refuses atomic.Uint64 // of the callbacks that came; every tenth is refused

	mu   sync.Mutex
	refs map[string]*tale // guarded by mu
}

// tale is what is known of one command.
type tale struct {
	accepted, refused string // who said so
	ended, by         string // its final state, and who told it
	callback          bool   // it has a callback, and of its final notice
	id                string // this is the X-Callback-Id
	handed            int    // times that edges got it
	answer            string // of its device, COMPLETED or FAILED; "" for none
}

func newTales(t testing.TB) *tales { return &tales{t: t, refs: make(map[string]*tale)} }

// with changes a tale. Its answer is change's.
func (s *tales) with(ref string, change func(*tale)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.refs[ref]
	if c == nil {
		c = &tale{}
		s.refs[ref] = c
	}
	change(c)
}

func (s *tales) accepted(ref, by string) {
	s.with(ref, func(c *tale) {
		if c.refused != "" {
			s.t.Errorf("%s: accepted by %s, after it was refused by %s", ref, by, c.refused)
		}
		c.accepted = by
	})
}

func (s *tales) refused(ref, by string) {
	s.with(ref, func(c *tale) {
		if c.accepted != "" || c.ended != "" {
			s.t.Errorf("%s: refused by %s, after it was accepted by %s and told as %q by %s", ref, by, c.accepted, c.ended, c.by)
		}
		c.refused = by
	})
}

// told notes a state; one that is final must be what was told before.
func (s *tales) told(ref, state, by string) {
	if !ended(state) {
		return
	}
	s.with(ref, func(c *tale) {
		if c.ended != "" && c.ended != state {
			s.t.Errorf("%s: %s by %s, %s by %s", ref, c.ended, c.by, state, by)
		}
		c.ended, c.by = state, by
	})
}

// hear takes what a Backend was told, and says whether it answers the COMMAND itself.
func (s *tales) hear(msg []byte, by string) (ref string, answers bool) {
	ref = string(member(msg, "requestRef"))
	switch typ, code := string(member(msg, "type")), string(member(msg, "code")); {
	case typ == "COMMAND_ACK":
		s.accepted(ref, by)
		return ref, true
	case typ == "COMMAND_RESPONSE":
		s.told(ref, string(member(msg, "status")), by)
	case typ == "ERROR":
		switch code {
		case "DUPLICATE_REQUEST":
			s.accepted(ref, by+" as a duplicate")
			return ref, true
		case "EDGE_UNAVAILABLE", "GATEWAY_UNAVAILABLE", "OVERLOADED":
			s.refused(ref, by+" with "+code)
			return ref, true
		case "TIMEOUT", "CONNECTION_LOST":
			s.told(ref, "TIMEOUT", by)
		case "CANCELLED":
			s.told(ref, code, by)
		case "DEVICE_BROKEN":
			s.told(ref, "FAILED", by)
		default:
			s.t.Errorf("%s was told %s", by, msg)
		}
	case typ != "CONNECTION_STATUS" && typ != "PROGRESS_UPDATE":
		s.t.Errorf("%s was told %s", by, msg)
	}
	return ref, false
}

// serve starts the receiver of callbacks.
func (s *tales) serve() (url string) {
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		contract.ValidateCallback(s.t, req.Header, body)
		if s.refuses.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		ref, status, id := string(member(body, "requestRef")), string(member(body, "status")), req.Header.Get("X-Callback-Id")
		if status == "IN_PROGRESS" {
			return
		}
		s.told(ref, status, "callback")
		s.with(ref, func(c *tale) {
			if c.id != "" && c.id != id {
				s.t.Errorf("%s: called back as %s and as %s", ref, c.id, id)
			}
			c.id = id
		})
	}))
	s.t.Cleanup(r.Close)
	return r.URL
}

// listedRecord is what a listing says of a command.
type listedRecord struct {
	RequestRef, Status string
	Result             json.RawMessage
	Error              struct {
		Code    string
		Details struct{ Stage string }
	}
	Callback struct{ State string }
}

// records reads all there are.
func (f *fixture) records() map[string]listedRecord {
	f.t.Helper()
	all := make(map[string]listedRecord)
	for cursor := ""; ; {
		var page struct {
			Commands   []listedRecord
			NextCursor string
		}
		if err := json.Unmarshal(f.want(200, "", "GET", "/api/commands?limit=1000&cursor="+cursor, "").body, &page); err != nil {
			f.t.Fatal(err)
		}
		for _, c := range page.Commands {
			if _, twice := all[c.RequestRef]; twice {
				f.t.Errorf("%s is listed twice", c.RequestRef)
			}
			all[c.RequestRef] = c
		}
		if cursor = page.NextCursor; cursor == "" {
			return all
		}
	}
}

// balance holds all that was told against the records of the last Gateway.
func (s *tales) balance(records map[string]listedRecord) (count map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count = make(map[string]int)
	for ref, c := range s.refs {
		r, kept := records[ref]
		switch {
		case !kept && (c.accepted != "" || c.ended != ""):
			s.t.Errorf("%s is lost: %+v", ref, *c)
		case kept && c.refused != "":
			s.t.Errorf("%s was refused and is %s: %+v", ref, r.Status, *c)
		case kept:
			s.check(ref, c, r)
			count[r.Status]++
		case c.refused != "":
			count["refused"]++
		default:
			count["unknown"]++
		}
	}
	return count
}

// check holds one command's tale against its record.
func (s *tales) check(ref string, c *tale, r listedRecord) {
	bad := func(why string) { s.t.Errorf("%s: %s: %+v, %+v", ref, why, *c, r) }
	if !ended(r.Status) {
		bad("is still open")
	}
	if c.ended != "" && c.ended != r.Status {
		bad("was told otherwise")
	}
	if r.Status == "FAILED" && c.answer == "" || (r.Status == "COMPLETED" || r.Status == "FAILED") && c.answer != r.Status {
		bad("is not what its device said")
	}
	if r.Status == "COMPLETED" && !bytes.Contains(r.Result, []byte(`"`+ref+`"`)) {
		bad("has another's result: " + string(r.Result))
	}
	if (r.Status == "TIMEOUT" || r.Status == "CANCELLED") && r.Error.Details.Stage == "PENDING" && c.handed > 0 {
		bad("was handed over, and its stage is PENDING")
	}
	if c.callback && (c.id == "" || r.Callback.State != "DELIVERED" && r.Callback.State != "DEAD") {
		bad("has no callback")
	}
}
