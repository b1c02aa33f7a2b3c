package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// makeGroup is a group of records.
func makeGroup(id, mark uint64, records ...string) []byte {
	b := make([]byte, groupLen)
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r))), r...)
	}
	sealGroup(b, id, mark, 99)
	return b
}

// frameOf is the frame that raft-wal writes around a group, and its commit.
func frameOf(g []byte, mark uint64) []byte {
	p := binary.AppendUvarint(nil, mark)
	p = append(p, 0, 0)
	p = append(binary.AppendUvarint(p, uint64(len(g))), g...)
	p = append(p, make([]byte, 16)...)
	b := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(p)))
	b = append(b, p...)
	b = append(b, make([]byte, (8-len(b)%8)%8)...)
	return append(b, 3, 0, 0, 0, 1, 2, 3, 4)
}

func recordsOf(t testing.TB, g group) (records []string) {
	t.Helper()
	if err := g.each(func(_ uint64, rec []byte) error {
		records = append(records, string(rec))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return records
}

func TestGroup(t *testing.T) {
	b := makeGroup(5, 7, "one", "", "three")
	for _, id := range []uint64{0, 5} {
		g, err := parseGroup(b, id)
		if err != nil || g.mark != 7 || g.id != 5 || g.nanos != 99 {
			t.Errorf("%+v, %v", g, err)
		}
		same(t, recordsOf(t, g), []string{"one", "", "three"})
	}
	if _, err := parseGroup(b, 6); err != errDamaged {
		t.Errorf("another log's: %v", err)
	}
	for at := range b {
		for bit := range 8 {
			spoiled := bytes.Clone(b)
			spoiled[at] ^= 1 << bit
			if _, err := parseGroup(spoiled, 5); err != errDamaged {
				t.Fatalf("bit %d of byte %d: %v", bit, at, err)
			}
		}
		if _, err := parseGroup(b[:at], 5); err != errDamaged {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	b[0] = 2
	binary.LittleEndian.PutUint32(b[4:], sumGroup(b))
	var newer *newerError
	if _, err := parseGroup(b, 5); !errors.As(err, &newer) || newer.format != 2 {
		t.Errorf("a newer one: %v", err)
	}
}

// TestScan finds the groups before and behind damage, and none inside another's records.
func TestScan(t *testing.T) {
	random := chance(t)
	inner := string(frameOf(makeGroup(6, 3, "forged"), 3))
	segment := make([]byte, segmentLen)
	var starts []int
	for mark := uint64(1); mark <= 5; mark++ {
		starts = append(starts, len(segment))
		segment = append(segment, frameOf(makeGroup(5, mark, "1234567", inner, inner[4:]), mark)...)
	}
	whole := len(segment)
	segment = append(segment, make([]byte, 1000)...)
	marks := func(b []byte, id uint64) (marks []uint64, lost int64) {
		lost, err := scan(b, id, func(at, end int, g group) error {
			if at%8 != 0 || end%8 != 0 || end <= at || end > whole {
				t.Errorf("group %d from %d to %d", g.mark, at, end)
			}
			marks = append(marks, g.mark)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return marks, lost
	}
	for _, id := range []uint64{0, 5} {
		if got, lost := marks(segment, id); len(got) != 5 || lost != 0 {
			t.Errorf("found %v, lost %d", got, lost)
		}
	}
	for range 2000 {
		at := starts[random.IntN(5)] + random.IntN(150)
		spoiled := bytes.Clone(segment)
		spoiled[at] ^= byte(1 + random.IntN(255))
		if got, _ := marks(spoiled, 5); len(got) < 4 {
			t.Errorf("byte %d: found %v", at, got)
		}
	}
}

// FuzzGroup reads anything as a group and as a segment.
func FuzzGroup(f *testing.F) {
	f.Add(makeGroup(5, 1, "one", "", "two"))
	f.Add(append(make([]byte, segmentLen), frameOf(makeGroup(5, 1, "one"), 1)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := parseGroup(b, 0); err == nil {
			again := bytes.Clone(b)
			if sealGroup(again, g.id, g.mark, g.nanos); !bytes.Equal(again, b) {
				t.Error("sealed again it differs")
			}
		}
		last := 0
		lost, err := scan(b, 0, func(at, end int, g group) error {
			if at < last || end <= at {
				t.Errorf("from %d to %d behind %d", at, end, last)
			}
			last = end
			_ = g.each(func(uint64, []byte) error { return nil })
			return nil
		})
		var newer *newerError
		if lost < 0 || lost > int64(len(b)) || err != nil && !errors.As(err, &newer) {
			t.Errorf("lost %d of %d, %v", lost, len(b), err)
		}
		sealed := append(make([]byte, groupLen), b...) // records that may be none
		sealGroup(sealed, 5, 1, 0)
		g, err := parseGroup(sealed, 5)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		if err := g.each(func(_ uint64, rec []byte) error {
			size += len(rec)
			return nil
		}); err != nil && err != errDamaged || size > len(b) {
			t.Errorf("%d bytes of %d, %v", size, len(b), err)
		}
	})
}
