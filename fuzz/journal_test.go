package fuzz

import (
	"context"
	"fmt"
	"testing"

	"subway/core/router"
	"subway/core/wire"
	"subway/server/callback"
)

// log is a journal in memory: records with their kinds.
type log struct {
	kinds []byte
	recs  [][]byte
}

func (l *log) Append(kind byte, rec []byte) uint64 {
	l.kinds, l.recs = append(l.kinds, kind), append(l.recs, append([]byte(nil), rec...))
	return uint64(len(l.recs))
}
func (l *log) Hold()            {}
func (l *log) Release()         {}
func (l *log) Full() bool       { return false }
func (l *log) Appended() uint64 { return uint64(len(l.recs)) }
func (l *log) Stored() uint64   { return uint64(len(l.recs)) }

// silent is a connection that takes everything.
type silent struct{}

func (silent) Append(wire.Class, []byte, []byte, []byte) wire.Result { return wire.Accepted }
func (silent) CloseWith(uint16, string)                              {}

type noCallbacks struct{}

func (noCallbacks) CheckURL([]byte) error { return nil }
func (noCallbacks) Notify(*router.Notice) {}

// someRecords are the records of a small life: an edge with devices, commands in every state.
func someRecords() *log {
	const t0 = wire.Time(1_705_744_800_000_000_000)
	l := &log{}
	r := router.New(router.Config{Callbacks: noCallbacks{}, Journal: l}, t0)
	r.Restored(t0)
	say := func(texts ...string) {
		s := r.Open(silent{}, "192.0.2.1:1", t0)
		for _, text := range texts {
			s.Receive([]byte(text), t0)
		}
	}
	say(`{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":["td-1","td-2"],"capabilities":["dedupe"]}`)
	for i := range 6 {
		say(`{"type":"REGISTER","clientId":"b","clientType":"BACKEND"}`,
			fmt.Sprintf(`{"type":"COMMAND","requestRef":"r%d","targetClientId":"td-1","callback":"http://a/b","command":{"commandType":"T"}}`, i))
	}
	say(`{"type":"REGISTER","clientId":"e","clientType":"EDGE","devices":["td-1"],"capabilities":["dedupe"]}`,
		`{"type":"COMMAND_RESPONSE","requestRef":"r1","status":"COMPLETED","result":{"a":1}}`,
		`{"type":"PROGRESS_UPDATE","requestRef":"r2","progress":{"percent":1}}`,
		`{"type":"UNREGISTER","clientId":"td-1"}`)
	r.Checkpoint(func() bool { return true })
	return l
}

// TestRecordsCutShort: a record may end anywhere.
func TestRecordsCutShort(t *testing.T) {
	now := wire.Time(1_705_744_801_000_000_000)
	seeds := someRecords()
	seen := map[byte]bool{}
	for i, rec := range seeds.recs {
		kind := seeds.kinds[i]
		seen[kind] = true
		if name, line := router.Describe(kind, rec); name == "" || line == "" {
			t.Errorf("kind %d is described as %q, %q", kind, name, line)
		}
		for end := range rec {
			if name, _ := router.Describe(kind, rec[:end]); name == "" {
				t.Errorf("kind %d cut at %d has no name", kind, end)
			}
			r := router.New(router.Config{Callbacks: noCallbacks{}, Journal: &log{}}, now)
			_ = r.Restore(kind, rec[:end], now)
			r.Restored(now)
		}
	}
	if len(seen) < 5 {
		t.Errorf("the seeds have records of %d kinds", len(seen))
	}
}

// FuzzJournal: no record makes a Router or an Outbox panic that takes it in, and what was
// taken in can be told, journalled and taken in again.
func FuzzJournal(f *testing.F) {
	seeds := someRecords()
	for i, rec := range seeds.recs {
		f.Add(seeds.kinds[i], rec, uint8(i))
	}
	for kind := router.KindOther; callback.Journalled(kind); kind++ {
		f.Add(kind, make([]byte, 40), uint8(0))
	}
	f.Fuzz(func(t *testing.T, kind byte, rec []byte, other uint8) {
		now := wire.Time(1_705_744_801_000_000_000)
		l := &log{}
		r := router.New(router.Config{Callbacks: noCallbacks{}, Journal: l}, now)
		i := int(other) % len(seeds.recs)
		_ = r.Restore(seeds.kinds[i], seeds.recs[i], now)
		_ = r.Restore(kind, rec, now)
		_, _ = router.Describe(kind, rec)
		r.Restored(now)
		r.Records(&router.RecordQuery{Limit: 10})
		r.Checkpoint(func() bool { return true })
		again := router.New(router.Config{Callbacks: noCallbacks{}, Journal: &log{}}, now)
		for i, rec := range l.recs {
			if err := again.Restore(l.kinds[i], rec, now); err != nil {
				t.Fatalf("kind %d: what was journalled is refused: %v", l.kinds[i], err)
			}
		}
		again.Restored(now)
		if got, want := again.Pending(), r.Pending(); got != want {
			t.Fatalf("%d commands are open, %d were", got, want)
		}
		r.Tick(now + 1<<40)

		_, _ = callback.Describe(kind, rec)
		o := callback.New(callback.Options{Journal: &log{}, Policy: callback.Policy{Hosts: []string{"nowhere.invalid"}}})
		track := func([]byte) callback.Tracker { return nil }
		_ = o.Restore(kind, rec, track)
		o.Restored(track)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = o.Close(ended)
	})
}
