package journal

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// codec writes what wal.BinaryCodec writes, byte for byte, into memory that it keeps: that
// one lets a buffer grow for each group, which is then garbage. A store has its own.
type codec struct {
	wal.BinaryCodec
	alone  bool // the next entry is stored by itself: raft-wal is done with it when StoreLog returns
	buf    []byte
	judged bool
}

// ID implements wal.Codec. raft-wal refuses another's codec that has an ID of its own, once
// when it is opened, and asks then whether the ID is that of the files, which it makes out
// to its own codec whichever there is.
func (c *codec) ID() uint64 {
	if !c.judged {
		c.judged = true
		return wal.FirstExternalCodecID
	}
	return wal.CodecBinaryV1
}

// Encode implements wal.Codec.
func (c *codec) Encode(l *raft.Log, w io.Writer) error {
	to, ok := w.(*bytes.Buffer)
	if !ok || !c.alone || to.Len() > 0 || len(l.Extensions) > 0 {
		return c.BinaryCodec.Encode(l, w)
	}
	b := binary.AppendUvarint(c.buf[:0], l.Index)
	b = binary.AppendUvarint(b, l.Term)
	b = binary.AppendUvarint(b, uint64(l.Type))
	b = append(binary.AppendUvarint(b, uint64(len(l.Data))), l.Data...)
	b, err := l.AppendedAt.AppendBinary(append(b, 0)) // no extensions
	if err != nil {
		return err
	}
	if c.buf = b; cap(b) > keepBytes {
		c.buf = nil
	}
	*to = *bytes.NewBuffer(b)
	return nil
}
