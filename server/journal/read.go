package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// reader reads the groups of a log without raft-wal, which looks at no checksum when it
// reads and stops at the first frame that it does not understand. It changes nothing, reads
// what can be read of a damaged log, and may be used while a process appends to it.
type reader struct {
	dir    string
	meta   *meta // nil: missing or damaged
	none   bool  // it is missing
	files  []segmentFile
	damage []string // what is wrong, for the operator
	lost   int64    // bytes that are no group and nothing else
	last   uint64   // the highest mark
	gaps   uint64   // marks that are missing
}

// segmentFile is one of the files, in the order of the marks in them.
type segmentFile struct {
	name     string
	base, id uint64
}

// newReader looks which files there are. It fails where a log is not to be read: a newer
// version's, or one that the disk does not give. The list is read first, so that a segment
// that is begun meanwhile is missing from it and does not look newer than the meta file.
func newReader(dir string) (*reader, error) {
	r := &reader{dir: dir}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var bad *damage
	m, err := loadMeta(dir)
	switch {
	case err == nil:
		r.meta = m
	case isMissing(err):
		r.none = true
		r.note("the file %q is missing", metaName)
	case errors.As(err, &bad):
		r.note("%s", bad.reason)
	default:
		return nil, err
	}
	for _, n := range names {
		r.add(n.Name())
	}
	if r.meta != nil {
		r.match()
	}
	slices.SortFunc(r.files, func(a, b segmentFile) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(a.id, b.id))
	})
	return r, nil
}

func (r *reader) note(format string, args ...any) {
	r.damage = append(r.damage, fmt.Sprintf(format, args...))
}

func (r *reader) add(name string) {
	if !strings.HasSuffix(name, ".wal") {
		return
	}
	f := segmentFile{name: name}
	_, err := fmt.Sscanf(name, "%d-%x.wal", &f.base, &f.id)
	if err != nil || name != segment.FileName(types.SegmentInfo{BaseIndex: f.base, ID: f.id}) {
		r.note("%q is no segment's name", name)
		return
	}
	r.files = append(r.files, f)
}

// match leaves the files that belong to the log. Those left from a truncation do not; one
// that is newer than the meta file tells that this is an old one.
func (r *reader) match() {
	var keep []segmentFile
	for i, s := range r.meta.State.Segments {
		f := segmentFile{segment.FileName(s), s.BaseIndex, s.ID}
		if slices.Contains(r.files, f) {
			keep = append(keep, f)
		} else if i < len(r.meta.State.Segments)-1 { // the last one may not be made yet
			r.note("the segment %s is missing", f.name)
		}
	}
	for _, f := range r.files {
		if f.id >= r.meta.State.NextSegmentID {
			r.note("the segment %s is newer than the file %q", f.name, metaName)
			keep = append(keep, f)
		}
	}
	r.files = keep
}

// fresh reports that there is no log yet.
func (r *reader) fresh() bool {
	return r.none && len(r.files) == 0 && len(r.damage) == 1
}

// each calls fn for every group that can be read, marks rising. Behind it, damage, lost,
// last and gaps say what could not. g is borrowed.
func (r *reader) each(fn func(g group) error) error {
	id, expected := uint64(0), uint64(0)
	if r.meta != nil {
		id, expected = r.meta.ID, r.meta.first()
	}
	var buf []byte
	for _, f := range r.files {
		b, err := r.read(f, buf)
		if err == errTruncated {
			expected = 0
			continue
		}
		if err != nil {
			return err
		}
		buf = b
		lost, err := scan(b, id, func(_, _ int, g group) error {
			if g.mark < expected || g.mark <= r.last {
				return nil // truncated, or a copy
			}
			if expected != 0 && g.mark > expected {
				r.gaps += g.mark - expected
				r.note("%d groups before group %d are missing", g.mark-expected, g.mark)
			}
			id, r.last, expected = g.id, g.mark, g.mark+1
			return fn(g)
		})
		r.lost += lost
		if err != nil {
			return err
		}
	}
	if r.meta == nil {
		return nil
	}
	if next, end := max(r.last+1, r.meta.first()), r.meta.tail().BaseIndex; next < end {
		r.gaps += end - next
		r.note("the groups from %d to %d are missing", next, end-1)
	}
	return nil
}

// errTruncated is a segment that was removed meanwhile since nobody needs it.
var errTruncated = errors.New("the segment was removed")

// read returns the bytes of a segment, in buf if they fit.
func (r *reader) read(f segmentFile, buf []byte) ([]byte, error) {
	file, err := os.Open(filepath.Join(r.dir, f.name))
	if isMissing(err) { // the process that has the log open may have truncated it
		if now, err := loadMeta(r.dir); err == nil && now.first() > f.base {
			return nil, errTruncated
		}
		r.note("the segment %s is gone", f.name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, bad, err := readAll(file, buf)
	if bad > 0 {
		r.lost += bad
		r.note("%d bytes of %s cannot be read from the disk", bad, f.name)
	}
	return b, err
}

// readAll reads a file into buf if it fits. What the disk cannot read is zero: bad counts it.
func readAll(f *os.File, buf []byte) (b []byte, bad int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	size := int(st.Size())
	b = slices.Grow(buf[:0], size)[:size]
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, syscall.EIO) {
		return b, readPages(f, b), nil
	}
	if err != nil && err != io.EOF { // io.EOF: it was cut meanwhile
		return nil, 0, err
	}
	return b[:n], 0, nil
}

// readPages reads a file of which the disk gives only some.
func readPages(f *os.File, b []byte) (bad int64) {
	const page = 4096
	for at := 0; at < len(b); at += page {
		p := b[at:min(at+page, len(b))]
		if _, err := f.ReadAt(p, int64(at)); err != nil && err != io.EOF {
			clear(p)
			bad += int64(len(p))
		}
	}
	return bad
}
