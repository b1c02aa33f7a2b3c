package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
)

// metaName is the file that says which segments make up the log. metaSpare has room for
// the next one: on a full disk the head can be cut off, which frees some.
const (
	metaName  = "meta"
	metaSpare = "meta.next"
)

// damage is a log that is there and cannot be used as it is.
type damage struct{ reason string }

func (d *damage) Error() string { return d.reason }

func damaged(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// meta is the content of that file, JSON behind a line with its checksum.
type meta struct {
	Format int
	ID     uint64 // in every group, see group.go
	State  types.PersistentState
}

// first is the mark of the first group that is still wanted.
func (m *meta) first() uint64 { return m.State.Segments[0].MinIndex }

// tail is the segment that is appended to.
func (m *meta) tail() *types.SegmentInfo { return &m.State.Segments[len(m.State.Segments)-1] }

// newMeta begins a log whose first group has the mark first.
func newMeta(first uint64, segmentBytes int) *meta {
	m := &meta{Format: format, ID: rand.Uint64() | 1}
	m.extend(first, segmentBytes)
	return m
}

// extend adds a segment to be appended to. Its file need not be there: raft-wal makes it.
func (m *meta) extend(base uint64, segmentBytes int) {
	m.State.Segments = append(m.State.Segments, types.SegmentInfo{
		ID: m.State.NextSegmentID, BaseIndex: base, MinIndex: base,
		SizeLimit: uint32(segmentBytes), Codec: wal.CodecBinaryV1, CreateTime: time.Now(),
	})
	m.State.NextSegmentID++
}

// loadMeta reads the file. What is there and cannot be used is a *damage or a *newerError.
func loadMeta(dir string) (*meta, error) {
	b, err := os.ReadFile(filepath.Join(dir, metaName))
	if err != nil {
		return nil, err
	}
	line, body, _ := bytes.Cut(b, []byte("\n"))
	if !bytes.Equal(line, metaLine(body)) {
		return nil, damaged("the file %q is damaged", metaName)
	}
	m := &meta{}
	var version struct{ Format int }
	if err := json.Unmarshal(body, &version); err == nil && version.Format > format {
		return nil, &newerError{version.Format}
	}
	if err := json.Unmarshal(body, m); err != nil || m.Format != format || len(m.State.Segments) == 0 {
		return nil, damaged("the file %q does not say what it should", metaName)
	}
	return m, nil
}

func metaLine(body []byte) []byte {
	return fmt.Appendf(nil, "subway journal %08x", crc32.Checksum(body, castagnoli))
}

// save replaces the file by one step that survives a crash.
func (m *meta) save(dir string) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b := append(append(metaLine(body), '\n'), body...)
	spare := filepath.Join(dir, metaSpare)
	if err := writeSynced(spare, b); err != nil {
		return err
	}
	if err := os.Rename(spare, filepath.Join(dir, metaName)); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	_ = os.WriteFile(spare, make([]byte, len(b)+8<<10), 0o600) // without it, the next one finds its own room
	return nil
}

// writeSynced overwrites a file in place, so that it takes no room that it has already.
func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncDir makes what changed in a directory stable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// metaStore is the file as raft-wal uses it, instead of its own bbolt file: that one has
// no checksum over what it says, blocks for good when it is opened twice, and is mapped
// into memory, where damage or a full disk end the process.
type metaStore struct {
	disk *disk

	mu   sync.Mutex // raft-wal rotates segments on a goroutine of its own
	meta *meta
}

func (s *metaStore) current() *meta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta
}

// Load implements types.MetaStore.
func (s *metaStore) Load(string) (types.PersistentState, error) { return s.current().State, nil }

// CommitState implements types.MetaStore.
func (s *metaStore) CommitState(state types.PersistentState) error {
	next := *s.current()
	next.State = state
	err := s.disk.fault("save", metaName)
	if err == nil {
		err = next.save(s.disk.dir)
	}
	if err != nil {
		return s.disk.note(err)
	}
	s.mu.Lock()
	s.meta = &next
	s.mu.Unlock()
	return nil
}

var errNoStable = errors.New("BUG: the journal keeps no keys")

// GetStable implements types.MetaStore.
func (s *metaStore) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable implements types.MetaStore.
func (s *metaStore) SetStable(_, _ []byte) error { return errNoStable }

// Close implements types.MetaStore.
func (s *metaStore) Close() error { return nil }

// isMissing reports an error that says that a file is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
