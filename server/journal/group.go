package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A group is
//
//	0   format, 1 byte; the version of what follows and of the file "meta"
//	1   zero, 3 bytes
//	4   CRC-32C of all but itself
//	8   the log's id, 8 bytes
//	16  mark, 8 bytes
//	24  when it was stored, nanoseconds since 1970
//	32  records, each behind its length (uvarint)
//
// all little-endian. The first eight bytes stay as they are in every format, so that what
// is newer can be told from what is damaged. The id is random: a record cannot hold bytes
// that pass for a group, should its own group be damaged or torn.
const (
	format   = 1
	groupLen = 32 // of a group without records
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is what a group is that was not written so.
var errDamaged = errors.New("the group is damaged")

// newerError is a log that was written by a newer version.
type newerError struct{ format int }

func (e *newerError) Error() string {
	return fmt.Sprintf("it was written by a newer version: its format is %d, this version knows %d", e.format, format)
}

// group is one that was read; records is borrowed from the file's bytes.
type group struct {
	id, mark uint64
	nanos    int64
	records  []byte
}

// sealGroup fills in the first groupLen bytes of b, which holds the records behind them.
func sealGroup(b []byte, id, mark uint64, nanos int64) {
	clear(b[:8])
	b[0] = format
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], mark)
	binary.LittleEndian.PutUint64(b[24:], uint64(nanos))
	binary.LittleEndian.PutUint32(b[4:], sumGroup(b))
}

func sumGroup(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// parseGroup reads a whole group. id is its log's, 0 if that is not known.
func parseGroup(b []byte, id uint64) (group, error) {
	if len(b) < groupLen || b[0] == 0 {
		return group{}, errDamaged
	}
	g := group{
		id:      binary.LittleEndian.Uint64(b[8:]),
		mark:    binary.LittleEndian.Uint64(b[16:]),
		nanos:   int64(binary.LittleEndian.Uint64(b[24:])),
		records: b[groupLen:],
	}
	if b[0] == format && id != 0 && g.id != id { // before the sum: it is the cheaper answer
		return group{}, errDamaged
	}
	if binary.LittleEndian.Uint32(b[4:]) != sumGroup(b) {
		return group{}, errDamaged
	}
	if b[0] != format {
		return group{}, &newerError{int(b[0])}
	}
	return g, nil
}

// each calls fn for every record, in order; rec is borrowed.
func (g group) each(fn func(mark uint64, rec []byte) error) error {
	for b := g.records; len(b) > 0; {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return errDamaged
		}
		end := n + int(size)
		if err := fn(g.mark, b[n:end:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}
