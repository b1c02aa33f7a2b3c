package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"subway/core/wire"
)

// Errors of Dead and Retry.
var (
	ErrUnknown = errors.New("callback unknown")
	ErrCursor  = errors.New("bad cursor")
	ErrFull    = errors.New("no room to send it again")
)

// DeadLetter is a final notice given up, as GET /api/callbacks?state=dead lists it.
type DeadLetter struct {
	ID         string // its X-Callback-Id
	RequestRef string
	URL        string // as given, with its placeholders
	State      string // DEAD
	Attempts   int    // of its last series; 0: it found no room
	LastError  string
	CreatedAt  wire.Time // of the notice

	serial uint64 // orders the listing
}

// deadStore keeps dead letters, the oldest one out first. Their order is that of their
// serials, which rise.
type deadStore struct {
	letters []*notice
	byID    map[string]*notice
	bytes   int
	serial  uint64
}

// buryLocked makes a final notice, in no lane any more, a dead letter.
func (o *Outbox) buryLocked(n *notice, lastError string) {
	o.fateLocked(kindDead, n, Dead, lastError)
	o.keepDeadLocked(n, lastError)
}

// keepDeadLocked is buryLocked for one that the journal has as a dead letter.
func (o *Outbox) keepDeadLocked(n *notice, lastError string) {
	n.tell(Dead)
	d := &o.dead
	id := finalID(n.ref())
	d.serial++
	n.dead = &DeadLetter{
		ID: string(id[:]), RequestRef: string(n.ref()), URL: string(n.url()), State: "DEAD",
		Attempts: n.attempts, LastError: lastError, CreatedAt: n.created, serial: d.serial,
	}
	if old := d.byID[n.dead.ID]; old != nil { // an orphan's answer may come twice
		o.fateLocked(kindDone, old, Dead, "")
		d.remove(old)
	}
	if d.byID == nil {
		d.byID = make(map[string]*notice)
	}
	d.letters = append(d.letters, n)
	d.byID[n.dead.ID] = n
	d.bytes += n.size()
	for len(d.letters) > o.opt.MaxDead || d.bytes > o.opt.MaxDeadBytes {
		o.fateLocked(kindDone, d.letters[0], Dead, "")
		d.remove(d.letters[0])
		o.counts[Evicted]++
	}
}

func (d *deadStore) remove(n *notice) {
	i := d.at(n.dead.serial)
	if i == 0 { // the usual case, without a move of all the others
		d.letters[0], d.letters = nil, d.letters[1:]
	} else {
		d.letters = slices.Delete(d.letters, i, i+1)
	}
	delete(d.byID, n.dead.ID)
	d.bytes -= n.size()
}

// at returns the place of the first letter whose serial is this one or higher.
func (d *deadStore) at(serial uint64) int {
	i, _ := slices.BinarySearchFunc(d.letters, serial, func(n *notice, s uint64) int {
		return cmp.Compare(n.dead.serial, s)
	})
	return i
}

// Dead lists dead letters, the newest first, at most limit of them and at most 1,000. A
// listing begins with an empty cursor and goes on with the one returned, which is empty
// at the end. ErrCursor is the only error.
func (o *Outbox) Dead(cursor string, limit int) (items []DeadLetter, next string, err error) {
	before := ^uint64(0)
	if cursor != "" {
		if before, err = strconv.ParseUint(cursor, 36, 64); err != nil {
			return nil, "", ErrCursor
		}
	}
	limit = min(max(limit, 1), 1000)
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.dead.at(before) - 1
	for ; i >= 0 && len(items) < limit; i-- {
		items = append(items, *o.dead.letters[i].dead)
	}
	if i >= 0 {
		next = strconv.FormatUint(items[len(items)-1].serial, 36)
	}
	return items, next, nil
}

// Retry sends a dead letter again: a new series of attempts under the same
// X-Callback-Id. ErrUnknown: there is none of this id. ErrFull: there is no room, the
// letter stays; the same when the Outbox is closing.
func (o *Outbox) Retry(id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.dead.byID[id]
	if n == nil {
		return ErrUnknown
	}
	if o.closing {
		return fmt.Errorf("%w: closing", ErrFull)
	}
	t, err := parseURL(n.url())
	if err != nil {
		return err
	}
	attempts := n.attempts
	n.attempts = 0
	n.tell(Pending)
	if err := o.admitLocked(n, &t); err != nil {
		n.attempts = attempts
		n.tell(Dead)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	o.fateLocked(kindAgain, n, Pending, "")
	o.dead.remove(n)
	n.dead = nil
	o.counts[Resent]++
	return nil
}

// quiet lets one line a second into the log, however many callbacks die.
type quiet struct {
	last   time.Time
	hidden int
}

// deathNotice is a log line; the zero value is none. It names no path or query: they
// may hold a secret.
type deathNotice struct {
	ref, host, err string
	attempts       int
	hidden         int
}

func (q *quiet) due(n *notice, v verdict, clock func() time.Time) deathNotice {
	if n.dead == nil {
		return deathNotice{}
	}
	now := clock()
	if now.Sub(q.last) < time.Second {
		q.hidden++
		return deathNotice{}
	}
	t, _ := parseURL(n.url())
	line := deathNotice{string(n.ref()), string(t.authority), v.err, n.attempts, q.hidden}
	q.last, q.hidden = now, 0
	return line
}

func (l deathNotice) log(to *slog.Logger) {
	if l.ref == "" {
		return
	}
	to.LogAttrs(context.Background(), slog.LevelWarn, "callback given up", slog.String("request_ref", l.ref),
		slog.String("receiver", l.host), slog.Int("attempts", l.attempts), slog.String("error", l.err), slog.Int("not_shown", l.hidden))
}
