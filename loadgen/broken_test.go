package loadgen_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"subway/loadgen"
)

// misdeeds are what the scripted gateway can do wrong, and the rows of the books that
// must say so: these and no others.
var misdeeds = map[string][]string{
	"lose the command":          {"sent = ended", "lost"},
	"lose the response":         {"sent = ended", "lost"},
	"lose the final":            {"untold"},
	"lose the callback":         {"uncalled"},
	"lose progress":             {"progress lost"},
	"end twice":                 {"ended twice"},
	"call twice":                {"called twice"},
	"call under two ids":        {"called twice"},
	"call back before progress": {"after the final"},
	"call back progress twice":  {"out of order"},
	"call back another end":     {"contradiction"},
	"alter the callback":        {"altered"},
	"progress after the final":  {"after the final"},
	"reorder progress":          {"out of order", "progress lost"}, // the later one comes first: a gap, and then a step back
	"overtake":                  {"overtaken"},
	"deliver twice":             {"delivered twice"},
	"misroute":                  {"misrouted"},
	"alter the command":         {"altered"},
	"alter the result":          {"altered"},
	"tell another end":          {"contradiction"},
	"tell another Backend":      {"untold", "foreign"}, // whom it is due never hears of it
	"tell two Backends":         {"foreign"},
	"invent an end":             {"contradiction"},
	"cancel by itself":          {"contradiction"},
	"time out at once":          {"contradiction"},
	"invent progress":           {"contradiction"},
	"refuse what was sent":      {"ended twice", "contradiction"}, // it is delivered, and answered, after all
}

// webSocketOnly is a run in which each command has one Backend that hears of it and, where
// the misdeed is about callbacks, one callback.
func webSocketOnly(fault string) loadgen.Scenario {
	s := small()
	s.HTTP = loadgen.HTTP{}
	s.Load.Callbacks = 0
	if strings.Contains(fault, "call") {
		s.Load.Callbacks = 1
	}
	if strings.HasPrefix(fault, "invent") || strings.HasPrefix(fault, "refuse") {
		s.Devices.Progress = 0
	}
	if fault == "invent progress" {
		s.Devices.Progress, s.Devices.Delay = 2, time.Second // the Backend hears of the invention before the device reports
	}
	return s
}

// drain is how long a run waits for what is still due in the end: longer than any machine
// takes, or, where something never comes, for a while.
func drain(want []string) time.Duration {
	for _, due := range []string{"lost", "untold", "uncalled"} {
		if slices.Contains(want, due) {
			return 8 * time.Second
		}
	}
	return time.Minute
}

// A gateway that does one thing wrong to one command in twenty is found out, and what it
// did is named.
func TestBrokenGateways(t *testing.T) {
	for fault, want := range misdeeds {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			s := webSocketOnly(fault)
			s.Drain = drain(want)
			rep := play(t, newScripted(t, fault).URL, s)
			if found := bad(rep); rep.Books.Balanced || !slices.Equal(found, want) {
				t.Errorf("faults %q, want %q: %q", found, want, rep.Books.Mismatches)
			}
		})
	}
}

// The same runs against a gateway that keeps its word balance: what is found above is
// found because of the misdeed.
func TestHonestGatewayInTheSameRuns(t *testing.T) {
	for _, fault := range []string{"lose the final", "call twice", "invent progress"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			s := webSocketOnly(fault)
			s.Drain = drain(nil)
			rep := play(t, newScripted(t, "").URL, s)
			if !rep.Books.Balanced || count(rep, "sent") < 50 {
				t.Errorf("%d sent, faults %q: %q", count(rep, "sent"), bad(rep), rep.Books.Mismatches)
			}
		})
	}
}

// Over HTTP a misdeed shows in what a wait is answered with, in callbacks, or when the
// gateway is asked at the end.
func TestBrokenGatewaysOverHTTP(t *testing.T) {
	for _, tc := range []struct {
		fault string
		wait  time.Duration
		want  []string
	}{
		{"", 0, nil},
		{"", time.Second, nil},
		{"lose the command", 0, []string{"sent = ended", "lost"}},
		{"lose the callback", 0, []string{"uncalled"}},
		{"call twice", 0, []string{"called twice"}},
		{"alter the callback", 0, []string{"altered"}},
		{"lose the response", 300 * time.Millisecond, []string{"sent = ended", "lost"}},
		{"answer another result", time.Second, []string{"altered"}},
		{"invent an end", time.Second, []string{"altered", "contradiction"}},
	} {
		t.Run(tc.fault+", wait "+tc.wait.String(), func(t *testing.T) {
			t.Parallel()
			s := small()
			s.Load.Rate, s.Load.Callbacks = 0, 0
			s.Devices.Progress = 0
			s.HTTP = loadgen.HTTP{Rate: 300, Workers: 16, Wait: tc.wait}
			s.Phases = []loadgen.Phase{{For: 2 * time.Second}}
			s.Drain = drain(tc.want)
			rep := play(t, newScripted(t, tc.fault).URL, s)
			if found := bad(rep); !slices.Equal(found, tc.want) || rep.Books.Balanced != (tc.want == nil) || count(rep, "sent") < 20 { // the first misdeed
				t.Errorf("%d sent, faults %q, want %q: %q", count(rep, "sent"), found, tc.want, rep.Books.Mismatches)
			}
		})
	}
}
