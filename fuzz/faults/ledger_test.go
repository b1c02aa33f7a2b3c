package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// ledger keeps the books of every command that the load posts: what its caller was told, what came by
// callback, what its device did. Any goroutine.
type ledger struct {
	prompt bool // answers of devices come within patientMs, whatever the fault

	mu       sync.Mutex
	all      map[string]*account // guarded by mu
	accepted int                 // guarded by mu: accounts that were
	called   int                 // guarded by mu: accounts whose final notice came
	wrong    []string            // guarded by mu: what was wrong at once
}

// account is what is known of one command. Its ref is also the value that its device is to set.
type account struct {
	ref      string
	patient  bool            // its timeout is patientMs
	accepted bool            // 200, or DUPLICATE_REQUEST after a silence
	refused  string          // the code of the refusal, where no attempt before it had no answer
	silent   bool            // an attempt had no answer
	anew     bool            // accepted after that: a crash may have lost that attempt's record, and not what its device had got
	told     map[string]bool // final states, by whatever way
	ids      map[string]bool // X-Callback-Id of final notices
	words    map[string]bool // their status
	calls    int             // final notices that were answered with 200
	ran      int             // times that the device ran it, to an end or until it was cancelled
	again    int             // times that the device was handed it though it knew it
	shed     int             // times that the device's queue was full
	record   *record         // as GET tells it at the end; nil: there is none
}

// record is what the books compare of a command's record.
type record struct {
	Status string
	Result json.RawMessage
	Error  struct {
		Code    string
		Details struct{ Stage string }
	}
	Callback struct{ State string }
}

func (r *record) final() bool { return r != nil && isFinal(r.Status) }

func isFinal(status string) bool {
	return slices.Contains([]string{"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}, status)
}

// patientMs is the timeout that commands have in milliseconds, but for those that are to time out. It is longer than
// it takes a system that is healed to bring an answer home.
const patientMs = 20_000

func newLedger(prompt bool) *ledger { return &ledger{prompt: prompt, all: map[string]*account{}} }

// with changes the account of a command, which was opened.
func (l *ledger) with(ref string, change func(*account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.all[ref]
	if a == nil {
		l.wrong = append(l.wrong, fmt.Sprintf("somebody knows of %q, which nobody posted", ref))
		return
	}
	was, called := a.accepted, a.calls > 0
	change(a)
	if a.accepted && !was {
		l.accepted++
	}
	if a.calls > 0 && !called {
		l.called++
	}
}

// open opens an account, before the command is posted.
func (l *ledger) open(ref string, patient bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[ref] = &account{ref: ref, patient: patient, told: map[string]bool{}, ids: map[string]bool{}, words: map[string]bool{}}
}

// complain notes what is wrong whatever else happens.
func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// counts tells how many were accepted, and called back.
func (l *ledger) counts() (accepted, called int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted, l.called
}

// refusals tells how many were refused with this code.
func (l *ledger) refusals(code string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if a.refused == code {
			n++
		}
	}
	return n
}

// refs lists the accounts, in order.
func (l *ledger) refs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.all))
}

// settled says that nothing more is to come for this command. rec is its record now, or nil.
func (l *ledger) settled(ref string, rec *record) (yes bool) {
	l.with(ref, func(a *account) {
		a.record = rec
		yes = rec == nil || rec.final() && a.calls > 0 && rec.Callback.State == "DELIVERED" && (a.ran > 0 || rec.Status != "COMPLETED")
	})
	return yes
}

// reread takes the record as it is after one more crash.
func (l *ledger) reread(ref string, rec *record) {
	l.with(ref, func(a *account) {
		switch {
		case rec != nil:
			a.told[rec.Status] = true
		case a.accepted:
			a.record = nil
		}
	})
}

// describe shows accounts.
func (l *ledger) describe(refs []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	for _, ref := range refs {
		fmt.Fprintf(&s, "%s: %s\n", ref, l.all[ref])
	}
	return s.String()
}

// totals are the line that is printed.
type totals struct {
	accepted, refused, callbacks, repeats int
	ended                                 map[string]int
}

// balance adds the books up and says what is wrong in them, account by account.
func (l *ledger) balance() (sum totals, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum.ended = map[string]int{}
	wrong = slices.Clone(l.wrong)
	for _, ref := range slices.Sorted(maps.Keys(l.all)) {
		a := l.all[ref]
		for _, what := range a.check(l.prompt) {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", ref, what, a))
		}
		if !a.accepted {
			sum.refused++
			continue
		}
		sum.accepted++
		sum.callbacks += a.calls
		sum.repeats += max(0, a.calls-1)
		if a.record.final() {
			sum.ended[a.record.Status]++
		}
	}
	return sum, wrong
}

// check says what is wrong with one account, when all is quiet.
func (a *account) check(prompt bool) (wrong []string) {
	is := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	is(a.ran > 1, "its device ran it more than once")
	is(a.again > 0, "its device was handed it more than once")
	is(len(a.ids) > 1, "its final notice has several ids")
	if !a.accepted {
		is(a.refused == "", "nobody said whether it is accepted")
		is(a.record != nil, "it was refused, and has a record")
		is(len(a.ids) > 0, "it was refused, and called back")
		is(a.ran > 0, "it was refused, and its device ran it")
		return wrong
	}
	if a.record == nil {
		return append(wrong, "it was accepted, and has no record")
	}
	r := a.record
	is(!r.final(), "it has not ended")
	is(a.calls == 0, "its callback did not come")
	is(r.Callback.State != "DELIVERED", "its callback is not known as delivered")
	for word := range a.words {
		is(word != r.Status, "its callback says otherwise")
	}
	for word := range a.told {
		is(word != r.Status, "its caller was told otherwise")
	}
	is(r.Status == "COMPLETED" && a.ran == 0, "it is completed, and its device did not run it")
	is(r.Status == "TIMEOUT" && a.ran > 0 && a.patient && prompt, "it has timed out, and its device answered it")
	is(r.Status == "COMPLETED" && !bytes.Contains(r.Result, []byte(`"`+a.ref+`"`)), "its result is another's")
	is(r.Error.Details.Stage == "PENDING" && !a.anew && a.ran+a.again+a.shed > 0, "it never left the Gateway, it says, and its device had it")
	return wrong
}

func (a *account) String() string {
	rec := "none"
	if a.record != nil {
		rec = fmt.Sprintf("%s %.100s %s %s %s", a.record.Status, a.record.Result, a.record.Error.Code, a.record.Error.Details.Stage, a.record.Callback.State)
	}
	words := func(of map[string]bool) []string { return slices.Sorted(maps.Keys(of)) }
	return fmt.Sprintf("accepted %v, refused %q, silent %v, told %v, callbacks %d %v %v, ran %d, handed again %d, record %s",
		a.accepted, a.refused, a.silent, words(a.told), a.calls, words(a.words), words(a.ids), a.ran, a.again, rec)
}
