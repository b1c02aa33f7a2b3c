package faults

import (
	"strings"
	"testing"
)

// TestLedger breaks the books in every way that they are to notice.
func TestLedger(t *testing.T) {
	const ref = "r-1"
	delivered := func(status string) *record {
		r := &record{Status: status, Result: []byte(`{"level":"r-1"}`)}
		r.Callback.State = "DELIVERED"
		return r
	}
	good := func(a *account) {
		a.accepted, a.ran, a.calls, a.record = true, 1, 1, delivered("COMPLETED")
		a.ids["i"], a.words["COMPLETED"], a.told["COMPLETED"] = true, true, true
	}
	refused := func(a *account) { a.refused = "OVERLOADED" }
	for _, c := range []struct {
		want  string // what is wrong; "": nothing
		first func(*account)
		then  func(*account)
	}{
		{"", good, nil},
		{"", good, func(a *account) { a.calls = 2 }},
		{"", refused, nil},
		{"ran it more than once", good, func(a *account) { a.ran = 2 }},
		{"handed it more than once", good, func(a *account) { a.again = 1 }},
		{"several ids", good, func(a *account) { a.ids["j"] = true }},
		{"no record", good, func(a *account) { a.record = nil }},
		{"not ended", good, func(a *account) { a.record = delivered("DISPATCHED") }},
		{"did not come", good, func(a *account) { a.calls = 0 }},
		{"not known as delivered", good, func(a *account) { a.record.Callback.State = "PENDING" }},
		{"callback says otherwise", good, func(a *account) { a.words["TIMEOUT"] = true }},
		{"told otherwise", good, func(a *account) { a.told["CANCELLED"] = true }},
		{"did not run it", good, func(a *account) { a.ran = 0 }},
		{"answered it", good, func(a *account) {
			a.record, a.words, a.told = delivered("TIMEOUT"), nil, nil
		}},
		{"another's", good, func(a *account) { a.record.Result = []byte(`{"level":"r-2"}`) }},
		{"", good, func(a *account) { a.record.Error.Details.Stage, a.anew = "PENDING", true }},
		{"never left the Gateway", good, func(a *account) { a.record.Error.Details.Stage = "PENDING" }},
		{"nobody said", func(*account) {}, nil},
		{"has a record", refused, func(a *account) { a.record = delivered("TIMEOUT") }},
		{"called back", refused, func(a *account) { a.ids["i"] = true }},
		{"its device ran it", refused, func(a *account) { a.ran = 1 }},
	} {
		l := newLedger(true)
		l.open(ref, true)
		l.with(ref, c.first)
		if c.then != nil {
			l.with(ref, c.then)
		}
		_, wrong := l.balance()
		if c.want == "" && len(wrong) > 0 || c.want != "" && !strings.Contains(strings.Join(wrong, "\n"), c.want) {
			t.Errorf("wanted %q, got %q", c.want, wrong)
		}
	}
	l := newLedger(true)
	l.with("stranger", refused)
	if _, wrong := l.balance(); len(wrong) != 1 {
		t.Errorf("a ref that nobody posted: %q", wrong)
	}
}
