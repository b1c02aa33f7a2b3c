package report

import (
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Channel is a way that commands go, or come back; each has a distribution of its own.
type Channel uint8

// The channels, for commands of NORMAL and LOW priority; [Channel.High] gives HIGH's.
const (
	WebSocket Channel = iota // sent by a Backend, until its COMMAND_RESPONSE or ERROR
	HTTP                     // POST /api/commands, until the answer that accepts or refuses it
	HTTPWait                 // POST /api/commands?wait=, until the answer
	Callback                 // from the command's intended instant to its final callback
	high                     // added to one of the above

	channels = 2 * high
)

var channelNames = [channels]string{
	"WebSocket", "HTTP", "HTTP with wait", "Callback",
	"WebSocket HIGH", "HTTP HIGH", "HTTP with wait HIGH", "Callback HIGH",
}

// High is the channel for commands of HIGH priority on c.
func (c Channel) High() Channel { return c%high + high }

// String is the channel's name in reports.
func (c Channel) String() string {
	if c >= channels {
		return "no channel"
	}
	return channelNames[c]
}

// isCommand tells the channels on which a command is sent and answered from Callback, on
// which it is only seen again.
func (c Channel) isCommand() bool { return c%high != Callback }

// MarshalJSON writes the name.
func (c Channel) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Code is how a command ended, as a small number that [Recorder.Code] gave.
type Code uint8

const (
	maxCodes    = 100
	maxCodeName = 64 // bytes; names come from the other side

	otherCode Code = maxCodes // whatever came after maxCodes names
)

// fine are the codes that are no errors: an end as wished, and HTTP's 202.
var fine = map[string]bool{"COMPLETED": true, "ACCEPTED": true}

// codeTable interns names. Looking up is on the way of each answer and takes no lock: the
// map is copied for each of the at most maxCodes names.
type codeTable struct {
	byName atomic.Pointer[map[string]Code]
	mu     sync.Mutex // guards adding
	names  []string
}

func (t *codeTable) code(name string) Code {
	if len(name) > maxCodeName {
		name = cut(name, maxCodeName)
	}
	if m := t.byName.Load(); m != nil {
		if c, ok := (*m)[name]; ok {
			return c
		}
		if len(*m) == maxCodes {
			return otherCode
		}
	}
	return t.codeSlow(name)
}

func (t *codeTable) codeSlow(name string) Code {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[string]Code{}
	if old := t.byName.Load(); old != nil {
		m = maps.Clone(*old)
	}
	if c, ok := m[name]; ok {
		return c
	}
	if len(m) == maxCodes {
		return otherCode
	}
	c := Code(len(m))
	m[name] = c
	t.names = append(t.names, name)
	t.byName.Store(&m)
	return c
}

func (t *codeTable) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.names...)
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
