package journal

import (
	"bytes"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/raft-wal/segment"
)

// tail is the segment that is appended to as it was found.
type tail struct {
	last       uint64 // mark of the last group that raft-wal will go on behind
	extra      []byte // the group after it, if it can be read
	begin, end int    // where the last group to be kept begins, and where what is kept ends
	sealed     bool   // it was sealed, and the next one not begun
	indexStart uint64
}

// mend brings the segment that is appended to into a state that raft-wal can work with:
// it cuts off a torn group, so that nothing of it is taken for something else later, and
// begins the next segment if only that one's end was written. The last group is written and
// synced once more: it may be in the kernel's memory only, and after a sync that failed the
// kernel takes it for written. mend returns a group that is whole although the commit
// behind it is not, to be stored again.
func (s *store) mend() (extra []byte, err error) {
	info := s.meta.current().tail()
	f, err := os.OpenFile(s.tailPath(), os.O_RDWR, 0)
	if isMissing(err) { // raft-wal makes it
		s.last, s.blank = info.BaseIndex-1, true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, _, err := readAll(f, nil)
	if err != nil {
		return nil, err
	}
	s.blank = len(b) == 0
	t, err := s.readTail(b)
	if err != nil {
		return nil, err
	}
	s.last = t.last
	to := written(b)
	if t.sealed {
		t.end = max(t.end, to)
	} else if to > t.end {
		s.torn = int64(to - t.end)
		clear(b[t.end:])
	}
	if to = max(to, t.end); to > t.begin {
		err = rewrite(f, b, t.begin, to)
	}
	if err == nil && t.sealed {
		err = s.finishRotation(t)
	}
	return t.extra, err
}

// written returns where the zeros at the end of a segment begin.
func written(b []byte) int {
	n := len(b)
	for n >= len(zeroPage) && bytes.Equal(b[n-len(zeroPage):n], zeroPage[:]) {
		n -= len(zeroPage)
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

func rewrite(f *os.File, b []byte, from, to int) error {
	if _, err := f.WriteAt(b[from:to], int64(from)); err != nil {
		return err
	}
	return f.Sync()
}

// readTail compares what raft-wal makes of the segment with the groups that are in it.
func (s *store) readTail(b []byte) (*tail, error) {
	info := s.meta.current().tail()
	w, err := segment.NewFiler(s.dir, s.disk).RecoverTail(*info)
	if err != nil {
		return nil, judge(err, syscall.EIO)
	}
	defer w.Close()
	t := &tail{last: max(w.LastIndex(), info.BaseIndex-1)}
	if _, t.indexStart, err = w.Sealed(); err != nil {
		return nil, err
	}
	seen, lastEnd, extraAt := info.BaseIndex-1, 0, 0
	_, err = scan(b, s.id, func(at, next int, g group) error {
		if g.mark != seen+1 || g.mark > t.last+1 {
			return damaged("behind group %d comes group %d, of %d", seen, g.mark, t.last)
		}
		if seen = g.mark; seen > info.BaseIndex {
			t.begin = at // else the segment's header is part of what was synced
		}
		if g.mark <= t.last {
			lastEnd = next
		} else {
			extraAt, t.end, t.extra = at, next, append(make([]byte, groupLen), g.records...)
		}
		return nil
	})
	if err == nil && seen < t.last {
		err = damaged("group %d cannot be read", seen+1)
	}
	if err != nil {
		return nil, err
	}
	sealed, next := commitBehind(b, lastEnd)
	switch {
	case t.extra != nil && (sealed || extraAt != next):
		return nil, damaged("group %d is not where it should be", seen)
	case t.extra == nil && t.last >= info.BaseIndex:
		t.sealed, t.end = sealed && t.indexStart == uint64(lastEnd+frameLen), next
	}
	return t, nil
}

// commitBehind finds the commit of the group that ends at end, which raft-wal has checked,
// and whether it seals the segment: then there is an index before it.
func commitBehind(b []byte, end int) (sealed bool, next int) {
	if end == 0 {
		return false, segmentLen // there is no group
	}
	kind, _, after, ok := frameAt(b, end)
	if ok && kind == segment.FrameIndex {
		if after+frameLen <= len(b) && b[after] == segment.FrameCommit { // raft-wal looks at no more of it
			return true, after + frameLen
		}
	}
	return false, min(end+frameLen, len(b))
}

// finishRotation does what raft-wal was about to do in the background when the process
// ended. It does not do that itself when it is opened: its log would refuse everything
// with ErrSealed for good.
func (s *store) finishRotation(t *tail) error {
	next := *s.meta.current()
	next.State.Segments = append(next.State.Segments[:0:0], next.State.Segments...)
	sealed := next.tail()
	sealed.SealTime, sealed.MaxIndex, sealed.IndexStart = time.Now(), t.last, t.indexStart
	next.extend(t.last+1, s.segmentBytes)
	return s.meta.CommitState(next.State)
}
