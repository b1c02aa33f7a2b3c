package attack

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// all takes every instant up to end.
func all(p *plan, end time.Duration) (instants []time.Duration) {
	for {
		at, ok := p.take(end)
		if !ok {
			return instants
		}
		instants = append(instants, at)
	}
}

func TestInstantsAreEvenAtTheRateInForce(t *testing.T) {
	p := newPlan(100)
	for _, c := range []struct {
		at   time.Duration
		rate float64
	}{{time.Second, 0}, {2 * time.Second, 1000}, {3 * time.Second, 10}} {
		if err := p.set(c.at, c.rate); err != nil {
			t.Fatal(err)
		}
	}
	got := all(p, 4*time.Second)
	var want []time.Duration
	for at := time.Duration(0); at <= time.Second; at += 10 * time.Millisecond {
		want = append(want, at)
	}
	for at := 2*time.Second + time.Millisecond; at <= 3*time.Second; at += time.Millisecond {
		want = append(want, at)
	}
	for at := 3*time.Second + 100*time.Millisecond; at <= 4*time.Second; at += 100 * time.Millisecond {
		want = append(want, at)
	}
	if d := len(got) - len(want); d < -1 || d > 0 { // the last one may fall a rounding beyond the end
		t.Fatalf("%d instants, want %d", len(got), len(want))
	}
	for i := range got {
		if d := got[i] - want[i]; d < -time.Microsecond || d > time.Microsecond {
			t.Fatalf("instant %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestPlanAgainstIntegral changes the rate at random and compares the count of instants
// with the integral of the rate, whether they are taken in time or all at the end.
func TestPlanAgainstIntegral(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		rate := 1 + rnd.Float64()*1000
		p, prompt := newPlan(rate), newPlan(rate)
		now, integral, taken := time.Duration(0), 0.0, 0
		for range 1 + rnd.IntN(50) {
			d := time.Duration(rnd.Int64N(int64(time.Second)))
			now += d
			integral += rate * d.Seconds()
			taken += len(all(prompt, now))
			if rate = rnd.Float64() * 1000; rnd.IntN(4) == 0 {
				rate = 0
			}
			if err := p.set(now, rate); err != nil {
				t.Fatal(err)
			}
			if err := prompt.set(now, rate); err != nil {
				t.Fatal(err)
			}
		}
		now += time.Second
		integral += rate
		due := p.due(now)
		late := len(all(p, now))
		taken += len(all(prompt, now))
		want := math.Floor(integral) + 1
		if math.Abs(float64(late)-want) > 1 || math.Abs(float64(taken)-want) > 1 || math.Abs(float64(due)-want) > 1 {
			t.Fatalf("late %d, prompt %d, due %d; the integral says %v", late, taken, due, want)
		}
		if rest := p.due(now); rest > 1 {
			t.Fatalf("%d are due after all were taken", rest)
		}
	}
}

func TestPlanBoundsItsChanges(t *testing.T) {
	p := newPlan(1)
	for i := range maxChanges - 1 {
		if err := p.set(time.Duration(i), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.set(time.Second, 2); err == nil {
		t.Fatal("one change too many was taken")
	}
	all(p, time.Second)
	if err := p.set(time.Second, 2); err != nil {
		t.Fatalf("after the plan was followed: %v", err)
	}
}
