package ledger

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var seed = flag.Uint64("seed", rand.Uint64(), "seed of the random tests")

// story is what happens to one command, the first of source 1, for device 5.
type story struct {
	*Book
	seq uint64
}

func (s story) arrive(session uint16, target uint32, owned bool) {
	s.Arrived(Arrival{Seq: s.seq, Target: target, Owned: owned, Dedupe: true, Session: session})
}

func (s story) answered() { s.arrive(1, 5, true); s.Answered(s.seq, Completed) }

// ask closes the books as a run does: what is open is asked for.
func (s story) ask(end Outcome, found bool) {
	for _, o := range s.Unsettled(10) {
		s.Asked(o, end, found, 100)
	}
}

func TestFaults(t *testing.T) {
	told := Terms{Source: 1, Priority: Normal, Target: 5, Told: true}
	both := Terms{Source: 1, Priority: Normal, Target: 5, Told: true, Callback: true}
	id := []byte("cb-1")
	for _, tc := range []struct {
		name   string
		terms  Terms
		faults string // names, in the order of Fault; "" where the books balance
		play   func(s story)
	}{
		{"it ends once", told, "", func(s story) { s.answered(); s.Final(s.seq, 1, Completed, 9) }},
		{"it fails", told, "", func(s story) { s.arrive(1, 5, true); s.Answered(s.seq, Failed); s.Final(s.seq, 1, Failed, 9) }},
		{"it is refused", told, "", func(s story) { s.Final(s.seq, 1, Refused, 9) }},
		{"it times out before and after it arrived", told, "", func(s story) { s.Final(s.seq, 1, TimedOut, 9); s.answered() }},
		{"it never left", told, "", func(s story) { s.Unsent(s.seq, 9) }},
		{"nobody knows of it", told, "lost", func(s story) { s.ask(Unknown, false) }},
		{"nobody knows of it, its connection broke", told, "", func(s story) { s.Broken(1, 50); s.ask(Unknown, false) }},
		{"it was accepted, its connection broke, nobody knows", told, "lost", func(s story) { s.Accepted(s.seq); s.Broken(1, 50); s.ask(Unknown, false) }},
		{"it was delivered, its connection broke, nobody knows", told, "lost", func(s story) { s.arrive(1, 5, true); s.Broken(1, 50); s.ask(Unknown, false) }},
		{"no answer to a POST, nobody knows", told, "", func(s story) { s.Doubtful(s.seq); s.ask(Unknown, false) }},
		{"it is still pending", told, "lost", func(s story) { s.ask(Unknown, true) }},
		{"it ended untold", told, "untold", func(s story) { s.answered(); s.ask(Completed, true) }},
		{"it ended untold, its connection broke", told, "", func(s story) { s.answered(); s.Broken(1, 50); s.ask(Completed, true) }},
		{"its connection broke before it was sent", told, "untold", func(s story) { s.Broken(1, 5); s.answered(); s.ask(Completed, true) }},
		{"its callback never came", both, "uncalled", func(s story) { s.answered(); s.Final(s.seq, 1, Completed, 9); s.ask(Completed, true) }},
		{"two ends alike", told, "ended twice", func(s story) { s.answered(); s.Final(s.seq, 1, Completed, 9); s.Final(s.seq, 1, Completed, 9) }},
		{"two ends that differ", told, "ended twice", func(s story) { s.answered(); s.Final(s.seq, 1, TimedOut, 9); s.Final(s.seq, 1, Completed, 9) }},
		{"called twice", both, "called twice", func(s story) {
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
		}},
		{"called again as it was not confirmed", both, "", func(s story) {
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, false, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
		}},
		{"called under two ids", both, "called twice", func(s story) {
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, false, 9)
			s.CallbackFinal(s.seq, Completed, []byte("cb-2"), true, 9)
		}},
		{"the callback tells another end", both, "contradiction", func(s story) {
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, TimedOut, id, true, 9)
		}},
		{"a callback that nobody asked for", told, "foreign", func(s story) {
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
		}},
		{"progress in order", told, "", func(s story) {
			s.arrive(1, 5, true)
			s.Stepped(s.seq, 0)
			s.Stepped(s.seq, 1)
			s.Progress(s.seq, 0)
			s.Progress(s.seq, 1)
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
		}},
		{"progress the wrong way round", told, "out of order, progress lost", func(s story) {
			s.arrive(1, 5, true)
			s.Stepped(s.seq, 0)
			s.Stepped(s.seq, 1)
			s.Progress(s.seq, 1)
			s.Progress(s.seq, 0)
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
		}},
		{"progress that never came", told, "progress lost", func(s story) {
			s.arrive(1, 5, true)
			s.Stepped(s.seq, 0)
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
		}},
		{"progress that never came, a link broke", told, "", func(s story) {
			s.EdgeBroken()
			s.arrive(1, 5, true)
			s.Stepped(s.seq, 0)
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
		}},
		{"progress after the end", told, "after the final", func(s story) { s.answered(); s.Final(s.seq, 1, Completed, 9); s.Progress(s.seq, 0) }},
		{"progress that no device sent", told, "contradiction", func(s story) { s.Progress(s.seq, 0); s.answered(); s.Final(s.seq, 1, Completed, 9) }},
		{"callback progress after the final callback", both, "after the final", func(s story) {
			s.arrive(1, 5, true)
			s.Stepped(s.seq, 0)
			s.Progress(s.seq, 0)
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
			s.CallbackProgress(s.seq, 0, false)
		}},
		{"callback progress out of order", both, "out of order", func(s story) {
			s.CallbackProgress(s.seq, 3, false)
			s.CallbackProgress(s.seq, 1, false)
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
		}},
		{"callback progress leaves steps out", both, "", func(s story) {
			s.CallbackProgress(s.seq, 1, false)
			s.CallbackProgress(s.seq, 3, false)
			s.answered()
			s.Final(s.seq, 1, Completed, 9)
			s.CallbackFinal(s.seq, Completed, id, true, 9)
		}},
		{"delivered twice", told, "delivered twice", func(s story) { s.answered(); s.arrive(1, 5, true); s.Final(s.seq, 1, Completed, 9) }},
		{"delivered again to the next session", told, "", func(s story) { s.answered(); s.arrive(2, 5, true); s.Final(s.seq, 1, Completed, 9) }},
		{"delivered again without dedupe", told, "delivered twice", func(s story) {
			for session := range uint16(2) {
				s.Arrived(Arrival{Seq: s.seq, Target: 5, Owned: true, Session: session})
			}
			s.Answered(s.seq, Completed)
			s.Final(s.seq, 1, Completed, 9)
		}},
		{"another edge", told, "misrouted", func(s story) { s.arrive(1, 5, false); s.Answered(s.seq, Completed); s.Final(s.seq, 1, Completed, 9) }},
		{"another device", told, "misrouted", func(s story) { s.arrive(1, 6, true); s.Answered(s.seq, Completed); s.Final(s.seq, 1, Completed, 9) }},
		{"refused and delivered", told, "contradiction", func(s story) { s.arrive(1, 5, true); s.Final(s.seq, 1, Refused, 9) }},
		{"completed, and no device answered", told, "contradiction", func(s story) { s.Final(s.seq, 1, Completed, 9) }},
		{"failed, and no device answered", told, "contradiction", func(s story) { s.Final(s.seq, 1, Failed, 9) }},
		{"failed, and the device said completed", told, "contradiction", func(s story) { s.answered(); s.Final(s.seq, 1, Failed, 9) }},
		{"told to another Backend", told, "untold, foreign", func(s story) { s.answered(); s.Final(s.seq, 2, Completed, 9); s.ask(Completed, true) }},
		{"never sent", told, "foreign", func(s story) { s.answered(); s.Final(s.seq, 1, Completed, 9); s.Final(s.seq+1, 1, Completed, 9) }},
		{"altered", told, "altered", func(s story) { s.answered(); s.Fault(Altered, "x", "the result"); s.Final(s.seq, 1, Completed, 9) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := New(Options{Run: 7})
			seq, ok := b.Open(tc.terms, 10)
			if !ok {
				t.Fatal("the book is full")
			}
			tc.play(story{b, seq})
			lines, balanced, samples := b.Balance()
			var found []string
			for f := range faultKinds {
				if b.Faults(f) > 0 {
					found = append(found, f.String())
				}
			}
			if got := strings.Join(found, ", "); got != tc.faults || balanced != (tc.faults == "") {
				t.Errorf("faults %q, want %q; balanced %t\n%v\n%v", got, tc.faults, balanced, samples, lines)
			}
			if b.Settled() != 1 {
				t.Errorf("%d commands are settled", b.Settled())
			}
		})
	}
}

func TestOrder(t *testing.T) {
	b := New(Options{})
	var o Order
	open := func(source uint16, p Priority) uint64 {
		seq, _ := b.Open(Terms{Source: source, Priority: p, Told: true}, 0)
		return seq
	}
	low, first, second, high, other := open(1, Low), open(1, Normal), open(1, Normal), open(1, High), open(2, Normal)
	many, more := open(ManySenders, Normal), open(ManySenders, Normal)
	for _, seq := range []uint64{high, other, first, second, low, more, many} { // priorities and sources are independent
		o.Arrived(b, seq)
	}
	if n := b.Faults(Overtaken); n != 0 {
		t.Fatalf("%d overtaken", n)
	}
	o.Arrived(b, first)
	if n := b.Faults(Overtaken); n != 1 {
		t.Fatalf("%d overtaken, want 1", n)
	}
	o.Reset()
	o.Arrived(b, first)
	if n := b.Faults(Overtaken); n != 1 {
		t.Fatalf("%d overtaken after a new registration, want 1", n)
	}
}

func TestRef(t *testing.T) {
	b, other := New(Options{Run: 0xabc}), New(Options{Run: 0xabd})
	for _, seq := range []uint64{0, 9, 1234567890, 999_999_999_999} {
		ref := b.AppendRef([]byte("x")[:0], seq)
		if got, ok := b.Seq(ref); !ok || got != seq {
			t.Errorf("%s: %d %t", ref, got, ok)
		}
		if _, ok := other.Seq(ref); ok {
			t.Errorf("%s was taken by another run", ref)
		}
	}
	for ref, stray := range map[string]bool{
		"lg-00000abd-000000000001": true, "lg-00000abc-000000000001": false, "lg-00000abd-1": false, "cmd-1705744800000-k3j9x0": false,
	} {
		if b.Stray([]byte(ref)) != stray {
			t.Errorf("%s: of another run: %t", ref, !stray)
		}
	}
	for _, bad := range []string{"", "lg-00000abc-", "lg-00000abc-00000000000x", "lg-00000abc-0000000000001", "cmd-1705744800000-k3j9x0q2a"} {
		if _, ok := b.Seq([]byte(bad)); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Ended commands are forgotten after the grace, and only then; a full book opens nothing.
func TestBounds(t *testing.T) {
	b := New(Options{MaxOpen: 2 * chunkSize, Grace: 100})
	room := len(b.ring) * chunkSize
	for i := range room {
		if _, ok := b.Open(Terms{Source: 1, Told: true}, 0); !ok {
			t.Fatalf("full after %d", i)
		}
	}
	if _, ok := b.Open(Terms{Source: 1, Told: true}, 0); ok {
		t.Fatal("the book took more than it has room for")
	}
	for seq := range uint64(chunkSize) {
		b.Final(seq, 1, TimedOut, 50)
	}
	if _, ok := b.Open(Terms{Source: 1, Told: true}, 150); ok {
		t.Fatal("commands were forgotten before their grace was over")
	}
	b.Final(0, 1, TimedOut, 60)
	if b.Faults(EndedTwice) != 1 {
		t.Fatal("a second end within the grace was not noticed")
	}
	if _, ok := b.Open(Terms{Source: 1, Told: true}, 151); !ok {
		t.Fatal("commands were kept after their grace")
	}
	b.Final(1, 1, TimedOut, 160)
	if b.Faults(EndedTwice) != 2 {
		t.Fatal("a second end after the grace was not noticed")
	}
	if again, _ := b.Arrived(Arrival{Seq: 2, Owned: true}); !again || b.counts[lateDeliveries].Load() != 1 {
		t.Fatal("a late delivery was not counted")
	}
	if n := len(b.Unsettled(10)); n != 10 {
		t.Fatalf("%d unsettled, want the 10 that were asked for", n)
	}
}

// What comes after a command was forgotten is a fault of the kind that it would have been, but
// for callbacks where processes are killed: these may come again at any time.
func TestForgotten(t *testing.T) {
	for _, repeats := range []bool{false, true} {
		b := New(Options{Grace: 1, Repeats: repeats})
		for range chunkSize {
			seq, _ := b.Open(Terms{Source: 1, Target: 5, Told: true, Callback: true}, 0)
			b.Final(seq, 1, TimedOut, 1)
			b.CallbackFinal(seq, TimedOut, []byte("cb"), true, 1)
		}
		b.Open(Terms{Source: 1, Told: true}, 10) // the next chunk: the first is forgotten
		b.Final(0, 1, TimedOut, 11)
		b.Progress(0, 0)
		b.CallbackProgress(0, 0, false)
		b.CallbackFinal(0, TimedOut, []byte("cb"), true, 11)
		b.Accepted(0)
		b.Doubtful(0)
		b.Answered(0, Completed)
		want := map[Fault]uint64{EndedTwice: 1, AfterFinal: 2, CalledTwice: 1}
		if repeats {
			delete(want, CalledTwice)
		}
		for f := range faultKinds {
			if b.Faults(f) != want[f] {
				t.Errorf("repeats %t: %d %s, want %d", repeats, b.Faults(f), f, want[f])
			}
		}
		b.CallbackFinal(1e9, TimedOut, []byte("cb"), true, 11)
		if b.Faults(Foreign) != 1 {
			t.Errorf("repeats %t: a callback about a command that was never sent was not noticed", repeats)
		}
	}
}

// Many goroutines play random stories; the sums must be those of a plain count.
func TestHammer(t *testing.T) {
	t.Logf("-seed %d", *seed)
	const players, commands = 8, 20_000
	b := New(Options{MaxOpen: 4 * chunkSize, Grace: 1})
	var all sync.WaitGroup
	var clock atomic.Int64
	var want [players][outcomes]uint64
	for p := range players {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(p)))
			for range commands {
				end := Outcome(1 + rng.IntN(int(outcomes)-1))
				seq, ok := b.Open(Terms{Source: uint16(p), Target: 5, Told: true}, clock.Add(1))
				for !ok { // a player that was interrupted holds the oldest chunk: let it go on
					runtime.Gosched()
					seq, ok = b.Open(Terms{Source: uint16(p), Target: 5, Told: true}, clock.Add(1))
				}
				if end == Completed || end == Failed {
					b.Arrived(Arrival{Seq: seq, Target: 5, Owned: true})
					b.Answered(seq, end)
				}
				if _, _, first := b.Final(seq, uint16(p), end, clock.Add(1)); !first {
					t.Error("not the first end")
				}
				want[p][end]++
			}
		})
	}
	all.Wait()
	if _, balanced, samples := b.Balance(); !balanced || b.Settled() != players*commands {
		t.Errorf("%d settled, balanced %t: %v", b.Settled(), balanced, samples)
	}
	for o := Completed; o < outcomes; o++ {
		sum := uint64(0)
		for p := range players {
			sum += want[p][o]
		}
		if got := b.ends[o].Load(); got != sum {
			t.Errorf("%s: %d, want %d", o, got, sum)
		}
	}
}

func TestAllocations(t *testing.T) {
	b := New(Options{})
	b.Open(Terms{Told: true}, 0)
	if n := testing.AllocsPerRun(chunkSize/2, func() { playOne(b, 1) }); n != 0 {
		t.Errorf("%v allocations for each command", n)
	}
}

func playOne(b *Book, now int64) {
	seq, _ := b.Open(Terms{Source: 1, Target: 5, Told: true}, now)
	b.Arrived(Arrival{Seq: seq, Target: 5, Owned: true})
	b.Answered(seq, Completed)
	b.Final(seq, 1, Completed, now+1)
}

func BenchmarkCommand(b *testing.B) {
	book := New(Options{Grace: 1})
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		now++
		playOne(book, now)
	}
	if _, balanced, samples := book.Balance(); !balanced {
		b.Fatal(samples)
	}
}
