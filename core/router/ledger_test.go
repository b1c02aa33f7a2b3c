package router

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ledger records what a hammered Router says of each command, by requestRef, and judges
// it afterwards. Every entry carries a stamp that tells which of two came first.
type ledger struct {
	stamp  atomic.Uint64
	shards [64]struct {
		mu    sync.Mutex
		lives map[string]*life
	}
}

// life is what was seen of one command.
type life struct {
	source    string // id of the Backend, "" for HTTP
	steady    bool   // the source is connected all the time
	callback  bool
	accepted  int
	refused   int
	told      []tiding // to the source
	called    []tiding // to Callbacks
	handed    []handing
	cancelled bool // somebody asked for it
}

// tiding is a progress or the end of a command.
type tiding struct {
	stamp uint64
	final bool
	what  string // the progress, or the final state
	stage string
}

// handing is one time that a command was given to a session.
type handing struct {
	stamp   uint64
	edge    string
	session int64
	dedupe  bool
}

// of runs fn on the life of a ref.
func (l *ledger) of(ref string, fn func(*life)) {
	h := 0
	for _, c := range []byte(ref) {
		h = h*31 + int(c)
	}
	s := &l.shards[uint(h)%64]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lives == nil {
		s.lives = map[string]*life{}
	}
	if s.lives[ref] == nil {
		s.lives[ref] = &life{}
	}
	fn(s.lives[ref])
}

// member returns the value of a string, or of a short number, in a message of ours.
func member(msg []byte, name string) string {
	_, rest, ok := bytes.Cut(msg, []byte(`"`+name+`":`))
	if !ok {
		return ""
	}
	if rest[0] != '"' {
		return string(rest[:bytes.IndexAny(rest, ",}")])
	}
	return string(rest[1 : 1+bytes.IndexByte(rest[1:], '"')])
}

// backendHears notes a message to a Backend.
func (l *ledger) backendHears(msg []byte) {
	ref := member(msg, "requestRef")
	if ref == "" {
		return
	}
	stamp := l.stamp.Add(1)
	l.of(ref, func(x *life) {
		switch code := member(msg, "code"); member(msg, "type") {
		case "COMMAND_ACK":
			x.accepted++
		case "PROGRESS_UPDATE":
			x.told = append(x.told, tiding{stamp: stamp, what: member(msg, "progress")})
		case "COMMAND_RESPONSE":
			x.told = append(x.told, tiding{stamp: stamp, final: true, what: member(msg, "status")})
		case "ERROR":
			switch code {
			case "TARGET_NOT_FOUND", "EDGE_UNAVAILABLE", "OVERLOADED", "DUPLICATE_REQUEST":
				x.refused++
			case "ALREADY_ENDED", "COMMAND_NOT_FOUND", "FORBIDDEN", "INVALID_MESSAGE":
			default:
				x.told = append(x.told, tiding{stamp: stamp, final: true, what: stateOf(code), stage: member(msg, "stage")})
			}
		}
	})
}

func stateOf(code string) string {
	switch code {
	case "CANCELLED", "TIMEOUT":
		return code
	case "CONNECTION_LOST":
		return "TIMEOUT"
	}
	return "FAILED"
}

// notified notes a callback.
func (l *ledger) notified(n *Notice) {
	t := tiding{stamp: l.stamp.Add(1), final: n.Final, what: string(n.Status), stage: member(n.Error, "stage")}
	if !n.Final {
		t.what = string(n.Progress)
	}
	l.of(string(n.Ref), func(x *life) { x.called = append(x.called, t) })
}

// judge returns what is wrong with the life of a ref. state is that of its record, ""
// where it is not kept.
func (x *life) judge(state string) error {
	switch {
	case x.accepted > 1:
		return fmt.Errorf("accepted %d times", x.accepted)
	case x.accepted == 0 && len(x.told)+len(x.called)+len(x.handed) > 0:
		return fmt.Errorf("refused, and yet: told %v, called %v, handed %v", x.told, x.called, x.handed)
	case x.accepted == 0:
		return nil
	}
	end, err := x.ends(state)
	if err != nil {
		return err
	}
	return x.deliveries(end)
}

// ends checks that there is one final tiding each way, the last of its way, and the same
// both ways; it returns it.
func (x *life) ends(state string) (end tiding, err error) {
	told, err := last(x.told, x.source != "" && x.steady)
	if err != nil {
		return end, fmt.Errorf("the source: %w", err)
	}
	called, err := last(x.called, x.callback)
	if err != nil {
		return end, fmt.Errorf("the callback: %w", err)
	}
	if end = told; !end.final {
		end = called
	}
	switch {
	case told.final && called.final && (told.what != called.what || told.stage != called.stage):
		return end, fmt.Errorf("the source is told %v, the callback %v", told, called)
	case end.final && state != "" && state != end.what:
		return end, fmt.Errorf("told %v, the record says %s", end, state)
	case end.what == "CANCELLED" && !x.cancelled:
		return end, fmt.Errorf("cancelled by nobody")
	}
	if x.steady && x.callback && !slices.Equal(words(x.told), words(x.called)) {
		return end, fmt.Errorf("the source is told %v, the callback %v", words(x.told), words(x.called))
	}
	return end, nil
}

// last returns the last of the tidings, which alone may, and if it must be has to, be final.
func last(ts []tiding, must bool) (end tiding, err error) {
	for i, t := range ts {
		if i > 0 && ts[i-1].stamp > t.stamp {
			return end, fmt.Errorf("out of order: %v", ts)
		}
		if end.final {
			return end, fmt.Errorf("something after the end: %v", ts)
		}
		end = t
	}
	if must && !end.final {
		return end, fmt.Errorf("not told of the end: %v", ts)
	}
	return end, nil
}

func words(ts []tiding) (w []string) {
	for _, t := range ts {
		w = append(w, t.what)
	}
	return w
}

// deliveries checks that no session got it twice, no edge without dedupe again, none
// after the end, and that the stage told is true.
func (x *life) deliveries(end tiding) error {
	sessions := map[int64]bool{}
	for i, h := range x.handed {
		if sessions[h.session] {
			return fmt.Errorf("session %d got it twice: %v", h.session, x.handed)
		}
		sessions[h.session] = true
		if i > 0 && (!h.dedupe || x.handed[i-1].edge != h.edge) {
			return fmt.Errorf("handed again, without dedupe or elsewhere: %v", x.handed)
		}
		if end.final && h.stamp > end.stamp {
			return fmt.Errorf("handed %v after the end %v", h, end)
		}
	}
	if end.stage == "PENDING" && len(x.handed) > 0 || end.stage == "DISPATCHED" && len(x.handed) == 0 {
		return fmt.Errorf("stage %s, handed %v", end.stage, x.handed)
	}
	return nil
}

// judge returns what is wrong with all lives, at most ten of it.
func (l *ledger) judge(state func(ref string) string) (accepted int, wrong []string) {
	for i := range l.shards {
		for ref, x := range l.shards[i].lives {
			accepted += min(x.accepted, 1)
			slices.SortFunc(x.handed, func(a, b handing) int { return int(a.stamp) - int(b.stamp) })
			if err := x.judge(state(ref)); err != nil && len(wrong) < 10 {
				wrong = append(wrong, ref+": "+err.Error())
			}
		}
	}
	return accepted, wrong
}

// judgeOrder checks each session of a dedupe edge: first what an earlier session had been
// handed, in the order of acceptance, and only then what is new.
func (l *ledger) judgeOrder(seq map[string]uint64) (wrong []string) {
	type got struct {
		stamp uint64
		ref   string
		again bool
	}
	sessions := map[int64][]got{}
	for i := range l.shards {
		for ref, x := range l.shards[i].lives {
			for n, h := range x.handed {
				if h.dedupe {
					sessions[h.session] = append(sessions[h.session], got{h.stamp, ref, n > 0})
				}
			}
		}
	}
	for _, session := range slices.Sorted(maps.Keys(sessions)) {
		list := sessions[session]
		slices.SortFunc(list, func(a, b got) int { return int(a.stamp) - int(b.stamp) })
		for i := 1; i < len(list) && len(wrong) < 10; i++ {
			if a, b := list[i-1], list[i]; b.again && (!a.again || seq[a.ref] > seq[b.ref]) {
				wrong = append(wrong, strings.Join([]string{"session", fmt.Sprint(session), a.ref, "before", b.ref}, " "))
			}
		}
	}
	return wrong
}
