package journal

import (
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
)

// store is a log that is open for writing. One goroutine at a time uses it, and after an
// error from put it is closed and another one is opened.
type store struct {
	where
	disk  *disk
	meta  *metaStore
	wal   *wal.WAL
	id    uint64 // of the log
	last  uint64 // mark of the last group
	torn  int64  // bytes of a group that was not written whole, cut off
	blank bool   // the file to go on in was missing or empty
	entry raft.Log
	codec codec
}

// where says where a log is and how it is opened.
type where struct {
	dir          string
	segmentBytes int
	times        *syncTimes
	fails        func(op, name string) error // in tests, see disk
}

// openStore opens a log whose groups have been read. The error is a *damage where the log
// has to be built anew.
func openStore(w where) (*store, error) {
	m, err := loadMeta(w.dir)
	if isMissing(err) {
		return nil, damaged("the file %q is missing", metaName)
	}
	if err != nil {
		return nil, err
	}
	s := &store{where: w, disk: newDisk(w.dir, w.times, w.fails)}
	s.meta, s.id = &metaStore{disk: s.disk, meta: m}, m.ID
	extra, err := s.mend()
	if err == nil {
		err = s.openWAL()
	}
	if err == nil && extra != nil {
		err = s.put(s.last+1, extra)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *store) openWAL() error {
	var err error
	s.wal, err = wal.Open(s.dir, wal.WithMetaStore(s.meta), wal.WithSegmentFiler(segment.NewFiler(s.dir, s.disk)),
		wal.WithCodec(&s.codec), wal.WithSegmentSize(s.segmentBytes), wal.WithLogger(hclog.NewNullLogger())) // what it would log is in disk.err
	if err != nil {
		s.wal = nil
		return judge(s.disk.note(err), syscall.ENOENT)
	}
	last, err := s.wal.LastIndex()
	if err != nil {
		return err
	}
	if last = max(last, s.meta.current().tail().BaseIndex-1); last != s.last {
		return damaged("the log ends at %d instead of %d", last, s.last)
	}
	return syncDir(s.dir) // raft-wal does it at the first sync of a file, but not if it crashed before that
}

// judge tells a log that cannot be used from a disk that cannot be used; the error of the
// system that speaks for the former is tells.
func judge(err error, tells syscall.Errno) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != tells {
		return err
	}
	return damaged("%v", err)
}

// put stores a group, which has room for its head in front. b is borrowed.
func (s *store) put(mark uint64, b []byte) error {
	sealGroup(b, s.id, mark, time.Now().UnixNano())
	s.entry = raft.Log{Index: mark, Data: b}
	s.codec.alone = true
	err := s.wal.StoreLog(&s.entry)
	s.codec.alone, s.entry.Data = false, nil
	if err == nil {
		s.last = mark
		return nil
	}
	if why := s.disk.why(); errors.Is(err, wal.ErrSealed) && why != nil {
		return why // of the rotation, which raft-wal only logs
	}
	return err
}

// truncate removes groups below a mark, but not the last one: of an empty log raft-wal
// does not know where it ended.
func (s *store) truncate(before uint64) error {
	before = min(before, s.last)
	first := s.meta.current().first()
	if before <= first {
		return nil
	}
	return s.wal.DeleteRange(first, before-1)
}

func (s *store) close() {
	if s.wal != nil {
		_ = s.wal.Close() // a rotation in progress is waited for, one to come is done by mend
	}
	s.disk.closeAll()
}

func (s *store) tailPath() string {
	return filepath.Join(s.dir, segment.FileName(*s.meta.current().tail()))
}
