package sim

import (
	"regexp"
	"testing"

	"subway/core/router"
	"subway/core/wire"
)

// TestBugs has something between the router and the parties misbehave, and holds the book
// to it that it finds the fault. What lies there is not the core: its own bugs are in
// TestMutants.
func TestBugs(t *testing.T) {
	for _, x := range []struct {
		name   string
		bug    bug
		caught string
	}{
		{"an end is told twice", bug{message: twice(wire.TypeCommandResponse)}, `is told COMMAND_RESPONSE .*for no reason`},
		{"a command is sent twice", bug{message: twice(wire.TypeCommand)}, `handed to .* twice`},
		{"a response is swallowed", bug{message: lost(wire.TypeCommandResponse)}, `is not told COMMAND_RESPONSE`},
		{"a cancel does not reach the edge", bug{message: lost(wire.TypeCancel)}, `is not told CANCEL`},
		{"a retry goes without its X-Callback-Id", bug{id: func(n *notice) string {
			if n.attempts > 1 {
				return ""
			}
			return n.id
		}}, `attempt 2 of a callback has id ""`},
		{"every attempt has an id of its own", bug{id: func(n *notice) string { return n.id + itoa(n.attempts) }}, `attempt 2 of a callback has id`},
		{"a callback is forgotten", bug{notice: func(n *router.Notice) []*router.Notice {
			if n.Final {
				return nil
			}
			return []*router.Notice{n}
		}}, `no notice`},
		{"a callback is made twice", bug{notice: func(n *router.Notice) []*router.Notice { return []*router.Notice{n, n} }}, `a notice .* for no reason`},
	} {
		t.Run(x.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 50; seed++ {
				out := run(seed, x.bug)
				if len(out.Faults) == 0 {
					continue
				}
				if !regexp.MustCompile(x.caught).MatchString(out.Faults[0]) {
					t.Errorf("seed %d: caught as %q, want %q\n%s", seed, out.Faults[0], x.caught, out.Excerpt)
				}
				return
			}
			t.Error("not caught in 50 worlds")
		})
	}
}

// twice has messages of a kind come twice, lost has them not come.
func twice(kind wire.Type) func(*link, *message) []*message {
	return func(_ *link, m *message) []*message {
		if m.kind == kind {
			return []*message{m, m}
		}
		return []*message{m}
	}
}

func lost(kind wire.Type) func(*link, *message) []*message {
	return func(_ *link, m *message) []*message {
		if m.kind == kind {
			return nil
		}
		return []*message{m}
	}
}
