package journal

import (
	"bytes"
	"encoding/binary"

	"github.com/hashicorp/raft-wal/segment"
)

// The frames of raft-wal's segments (its README, "Segment Files"): a header of eight bytes
// (type, three zeros, length or checksum), the payload, zeros up to a multiple of eight.
const (
	frameLen   = 8
	segmentLen = 32 // of a segment's own header
)

// frameAt reads the header of a frame and says where the next begins. It is not ok where
// no frame can begin or its payload is cut short.
func frameAt(b []byte, at int) (kind uint8, payload []byte, next int, ok bool) {
	if at+frameLen > len(b) || b[at+1]|b[at+2]|b[at+3] != 0 {
		return 0, nil, 0, false
	}
	size := int(binary.LittleEndian.Uint32(b[at+4:]))
	switch kind = b[at]; kind {
	case segment.FrameCommit:
		return kind, nil, at + frameLen, true // what looks like its length is a checksum
	case segment.FrameEntry, segment.FrameIndex:
		start := at + frameLen
		if size > segment.MaxEntrySize || size > len(b)-start {
			return 0, nil, 0, false
		}
		return kind, b[start : start+size], start + (size+7)&^7, true
	}
	return 0, nil, 0, false
}

// entryRest is what is behind the data of a raft.Log: no extensions, and a time.
const entryRest = 1 + 15

// entryData finds the group in the payload of an entry, which is a raft.Log as
// wal.BinaryCodec writes it. That codec's Decode panics on some damaged input.
func entryData(b []byte) ([]byte, bool) {
	size := uint64(0)
	for range 4 { // index, term, type, length of the data
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, false
		}
		size, b = v, b[n:]
	}
	if len(b) < entryRest || size != uint64(len(b)-entryRest) { // also tells a frame whose length is damaged
		return nil, false
	}
	return b[:size], true
}

// scan calls visit for every whole group in the bytes of a segment, wherever it lies, and
// returns about how many bytes belong to no frame and are not zero. Groups carry a checksum of
// their own, so neither the segment's index nor the frames before one are needed to find
// it. id is the log's; 0 takes it from the first group.
func scan(b []byte, id uint64, visit func(at, end int, g group) error) (lost int64, err error) {
	for at := segmentLen; at+frameLen <= len(b); {
		kind, payload, next, ok := frameAt(b, at)
		switch {
		case ok && kind == segment.FrameEntry:
			g, err := groupIn(payload, id)
			if err == errDamaged {
				ok = false
				break
			}
			if err != nil {
				return lost, err
			}
			id = g.id
			if err := visit(at, next, g); err != nil {
				return lost, err
			}
		case ok && kind == segment.FrameIndex:
			after, _, _, whole := frameAt(b, next)
			ok = whole && after == segment.FrameCommit
		}
		if !ok {
			if next = at + zeros(b[at:]); next == at {
				lost += frameLen
				next += frameLen
			}
		}
		at = next
	}
	return lost, nil
}

// zeros returns how many bytes at the start of b are zero, in whole words: most of a segment
// is, until it is written.
func zeros(b []byte) (n int) {
	for n+len(zeroPage) <= len(b) && bytes.Equal(b[n:n+len(zeroPage)], zeroPage[:]) {
		n += len(zeroPage)
	}
	for n+frameLen <= len(b) && binary.LittleEndian.Uint64(b[n:]) == 0 {
		n += frameLen
	}
	return n
}

var zeroPage [4096]byte

func groupIn(payload []byte, id uint64) (group, error) {
	data, ok := entryData(payload)
	if !ok {
		return group{}, errDamaged
	}
	return parseGroup(data, id)
}
