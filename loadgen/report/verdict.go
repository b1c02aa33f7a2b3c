package report

import "fmt"

// The rule by which the generator was the bottleneck; see verdict.
const (
	busyShare     = 0.9  // of its processors, in a second
	busySeconds   = 0.05 // of the seconds may be busier than that: a start, a collection
	lateP99Ms     = 10
	achievedShare = 0.98 // of the intended rate was sent
	gatewayShare  = 0.5  // a gateway below it had processors to spare
)

// judge fills Bottleneck and Why.
func (rep *Report) judge() {
	rep.Generator.Bottleneck, rep.Generator.Why = verdict(rep.Generator, rep.Rates, rep.Gateway.CPUShareMean, rep.DurationSeconds)
}

// verdict says whether the generator was the bottleneck, and by which rule. The rule is:
//
//   - it used more than 90 % of its processors in more than 5 % of the seconds, or
//   - 1 % of its sends left more than 10 ms after their intended instant, or
//   - it sent less than 98 % of the intended rate, not counting what had no connection, and the gateway used less than half of
//     its processors. A gateway whose CPU is not known counts as one that had some to
//     spare: better a doubt too many than a wrong figure.
func verdict(g Generator, r Rates, gateway Share, seconds float64) (bool, string) {
	if seconds > 0 && g.BusySeconds > busySeconds*seconds {
		return true, fmt.Sprintf("it used more than 90 %% of its %s in %s of %s",
			coresText(g.Cores), secondsText(g.BusySeconds), secondsText(seconds))
	}
	if g.LateP99Ms > lateP99Ms {
		return true, fmt.Sprintf("1 %% of its sends left more than %s late (10 ms are allowed)", msText(g.LateP99Ms, 3))
	}
	if r.IntendedPerSecond > 0 && r.SentPerSecond+r.NotSentPerSecond < achievedShare*r.IntendedPerSecond {
		fell := fmt.Sprintf("it sent %s/s of %s/s", rateText(r.SentPerSecond), rateText(r.IntendedPerSecond))
		if !gateway.Known() {
			return true, fell + ", and what the gateway used is not known"
		}
		if gateway < gatewayShare {
			return true, fmt.Sprintf("%s while the gateway used %s of its processors", fell, shareText(gateway))
		}
		return false, fmt.Sprintf("%s, but the gateway used %s of its processors", fell, shareText(gateway))
	}
	why := "no rule says that it was"
	if g.CPUShareMax.Known() {
		why = fmt.Sprintf("it used at most %s of its %s in a second", shareText(g.CPUShareMax), coresText(g.Cores))
	}
	if g.LateCount > 0 {
		why += fmt.Sprintf(", and 99 %% of its sends left within %s", msText(g.LateP99Ms, 3))
	}
	return false, why
}

func coresText(n float64) string {
	if n == 1 {
		return "one processor"
	}
	return trimmed(round(n, 1)) + " processors"
}

// generatorVerdict is what stands at the top of text and HTML: the verdict, and the rest.
func (rep *Report) generatorVerdict() (verdict, rest string) {
	if rep.Generator.Bottleneck {
		return "The generator was the bottleneck", "these figures are about it, not the gateway (" + rep.Generator.Why + ")."
	}
	return "The generator was not the bottleneck", rep.Generator.Why + "."
}

// booksVerdict is the verdict of the books in words, and the rest.
func (rep *Report) booksVerdict() (verdict, rest string) {
	b := rep.Books
	if b == nil {
		return "No books were kept", "nothing says that each command ended once."
	}
	bad := 0
	for _, e := range b.Entries {
		if !e.OK {
			bad++
		}
	}
	switch {
	case b.Balanced:
		return "The books balance", "every count is as it should be."
	case bad == 0:
		return "The books do not balance", "see the mismatches."
	}
	return "The books do not balance", fmt.Sprintf("%d of their %d counts are wrong.", bad, len(b.Entries))
}
