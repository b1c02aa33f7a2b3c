package callback

// Outcome is what became of a notice or an attempt. Its name is the label of
// callbacks_total{outcome} (PROTOCOL.md section 8).
type Outcome uint8

// The outcomes. Every notice ends as one of Sent, GivenUp, Superseded, Coalesced,
// Full, Failed, Refused or Late; Retried counts attempts that another one follows, and
// Resent the dead letters sent again by hand, which end once more.
const (
	Sent       Outcome = iota // the receiver said 2xx
	GivenUp                   // a final notice became a dead letter after its attempts
	Retried                   // an attempt failed and another will be made
	Resent                    // a dead letter was sent again by hand
	Superseded                // a progress waiting for its retry gave way to a newer notice
	Coalesced                 // a progress gave way because a bound was reached
	Failed                    // a progress failed for good
	Full                      // no room: a progress was dropped, a final is a dead letter
	Refused                   // its URL is no good, or the Outbox is closing
	Late                      // a progress after its request's final notice
	Evicted                   // a dead letter was forgotten for a newer one
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"delivered", "dead", "retried", "resent", "dropped_superseded", "dropped_coalesced",
	"dropped_failed", "shed_full", "refused", "dropped_late", "dead_evicted",
}

// String returns the label.
func (c Outcome) String() string {
	if c < numOutcomes {
		return outcomeNames[c]
	}
	return "other"
}
