package journal

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

func TestCodecWritesWhatRaftWALDoes(t *testing.T) {
	rng := chance(t)
	c := &codec{alone: true}
	for range 200 {
		l := &raft.Log{Index: rng.Uint64() >> rng.IntN(64), Term: rng.Uint64() >> rng.IntN(64), Type: raft.LogType(rng.IntN(5)), Data: make([]byte, rng.IntN(3000))}
		if rng.IntN(4) == 0 {
			l.AppendedAt = time.Unix(rng.Int64N(1<<32), rng.Int64N(1e9))
		}
		if rng.IntN(10) == 0 {
			l.Extensions = []byte("x")
		}
		for i := range l.Data {
			l.Data[i] = byte(rng.Uint32())
		}
		var got, want bytes.Buffer
		if err := c.Encode(l, &got); err != nil {
			t.Fatal(err)
		}
		if err := (&wal.BinaryCodec{}).Encode(l, &want); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("%+v:\n%x\nwant\n%x", l, got.Bytes(), want.Bytes())
		}
	}
}
