package journal

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// What bounds a group and a record. raft-wal writes larger entries than the 64 MiB that it
// reads.
const (
	MaxRecord  = 32 << 20 // bytes of a record; larger ones are a bug of the caller
	groupBytes = 4 << 20  // beyond which the next record begins a new group
	keepBytes  = 8 << 20  // of a buffer that is used again
)

// ErrClosed is what Wait returns after Close for what has not been stored.
var ErrClosed = errors.New("the journal is closed")

// Options configure a journal.
type Options struct {
	Dir          string        // exists; the caller holds a lock on it. The log is in Dir/journal
	SegmentBytes int           // of a file, taken from the disk in advance; 64 MiB, 1 GiB at most
	MaxUnstored  int64         // bytes appended and not stored, beyond which Full is true; 64 MiB
	Retry        time.Duration // after a failure, until the next try; 1 s
	Logger       *slog.Logger  // hears of damage, of failures and of their end

	fails func(op, name string) error // in tests, see disk
}

func (o *Options) setDefaults() {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	o.SegmentBytes = min(o.SegmentBytes, 1<<30) // raft-wal counts in 32 bits
	if o.MaxUnstored <= 0 {
		o.MaxUnstored = 64 << 20
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Journal is an open journal. Its methods may be called from any goroutine.
type Journal struct {
	opt   Options
	where where
	fresh bool

	wake    chan struct{} // capacity 1: there is something to do
	closing chan struct{} // closed by Close
	done    chan struct{} // the committer has ended

	turn     sync.RWMutex // held for reading, the group being gathered goes on; locked before mu
	mu       sync.Mutex
	buf      []byte    // the group being gathered, behind room for its head; guarded by mu, as all below
	records  int       // in buf
	mark     uint64    // of buf
	queue    []pending // groups that were full before they could be stored
	spare    []byte    // the buffer that was stored last
	waiting  []waiting // by mark; a few groups' at most
	closed   bool
	onStored func(mark uint64)

	stored   atomic.Uint64
	appended atomic.Uint64 // the mark of the last record
	unstored atomic.Int64  // bytes
	before   atomic.Uint64
	failure  atomic.Pointer[failure]
	times    syncTimes
	count    counts

	// The committer's own.
	store *store // nil: it is to be opened
}

// pending is a group to be stored.
type pending struct {
	mark    uint64
	b       []byte
	records int
}

type failure struct {
	err   error
	since time.Time
}

type counts struct{ groups, records, bytes, failures atomic.Uint64 }

// Open reads the log, calls fn for every record in the order in which they were appended,
// and makes it ready; rec is borrowed until fn returns, and an error of fn is returned. A
// damaged log is moved aside and what can be read of it is kept, see the package comment.
// Where the log can be read and the disk takes nothing the journal begins as a failing one;
// any other error is for the operator, and nothing was changed.
func Open(o Options, fn func(mark uint64, rec []byte) error) (*Journal, error) {
	o.setDefaults()
	j := &Journal{
		opt: o, buf: make([]byte, groupLen),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	j.where = where{dir: filepath.Join(o.Dir, logName), segmentBytes: o.SegmentBytes, times: &j.times, fails: o.fails}
	if err := j.open(fn); err != nil {
		return nil, fmt.Errorf("journal %s: %w", j.where.dir, err)
	}
	go j.run()
	return j, nil
}

// open reads the log and opens it for writing; a damaged one once more after it was built anew.
func (j *Journal) open(fn func(mark uint64, rec []byte) error) error {
	if err := finishRebuild(j.opt.Dir); err != nil {
		return err
	}
	fresh, err := create(j.where)
	if err != nil {
		return err
	}
	var bad *damage
	last, read, err := load(j.where.dir, 0, fn)
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if err == nil {
		j.store, err = openStore(j.where)
	}
	if errors.As(err, &bad) {
		if err := rebuild(j.opt.Dir, j.where, bad.reason, last, j.opt.Logger); err != nil {
			return err
		}
		if last, _, err = load(j.where.dir, read, fn); err != nil {
			return err
		}
		j.store, err = openStore(j.where)
	}
	if err != nil && !refused(err) {
		return err
	}
	j.fresh = fresh
	if err != nil {
		j.failed(err)
		j.signal()
	} else if n := j.store.torn; n > 0 {
		j.opt.Logger.Warn("the journal ended in a group that was not written whole", "bytes", n)
	} else if j.store.blank && !fresh {
		j.opt.Logger.Warn("the last file of the journal is missing or empty: unless it was being begun when the process ended, what it held is lost",
			"file", filepath.Base(j.store.tailPath()), "left", last)
	}
	j.mark = last + 1
	j.stored.Store(last)
	j.appended.Store(last)
	return nil
}

// refused reports an error that only says that nothing can be written now.
func refused(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// create makes an empty log if there is none, and reports whether it did.
func create(w where) (fresh bool, err error) {
	if err := os.Mkdir(w.dir, 0o700); err != nil && !os.IsExist(err) {
		return false, err
	}
	r, err := newReader(w.dir)
	if err != nil || !r.fresh() {
		return false, err
	}
	if err := newMeta(1, w.segmentBytes).save(w.dir); err != nil {
		return false, err
	}
	return true, syncDir(filepath.Dir(w.dir))
}

// load calls fn for every record but those of the first skip groups, and returns the last
// mark and how many groups it came to. It ends with a *damage at the first group that is
// missing.
func load(dir string, skip int, fn func(mark uint64, rec []byte) error) (last uint64, read int, err error) {
	r, err := newReader(dir)
	if err != nil {
		return 0, 0, err
	}
	if len(r.damage) > 0 {
		return 0, 0, damaged("%s", r.damage[0])
	}
	err = r.each(func(g group) error {
		if len(r.damage) > 0 {
			return damaged("%s", r.damage[0])
		}
		last = g.mark
		if read++; read <= skip {
			return nil
		}
		return g.each(fn)
	})
	if err == nil && len(r.damage) > 0 {
		err = damaged("%s", r.damage[0])
	}
	return max(last, r.meta.first()-1), read, err
}

// Fresh reports whether Open found no log and began one. Any goroutine.
func (j *Journal) Fresh() bool { return j.fresh }

// Append adds a record, head and body one behind the other, to the group being gathered,
// and returns that group's mark. It copies both and never waits for the disk; it does not
// refuse either: see Full. After Close it does nothing.
func (j *Journal) Append(head, body []byte) (mark uint64) {
	n := len(head) + len(body)
	if n > MaxRecord {
		panic(fmt.Sprintf("BUG: a record of %d bytes in the journal", n))
	}
	j.mu.Lock()
	mark = j.mark
	if j.closed {
		j.mu.Unlock()
		return mark
	}
	if j.records > 0 && len(j.buf)+n > groupBytes {
		j.queue = append(j.queue, j.turnLocked())
		mark = j.mark
	}
	before := len(j.buf)
	j.buf = binary.AppendUvarint(j.buf, uint64(n))
	j.buf = append(append(j.buf, head...), body...)
	j.records++
	j.appended.Store(mark)
	first := j.records == 1
	j.unstored.Add(int64(len(j.buf) - before))
	j.mu.Unlock()
	if first {
		j.signal()
	}
	return mark
}

// Hold has what is appended until Release stand in one group with what else is, unless that
// becomes too large. It must be short, and is not held twice by one goroutine.
func (j *Journal) Hold() { j.turn.RLock() }

// Release ends a Hold.
func (j *Journal) Release() { j.turn.RUnlock() }

// turnLocked ends the group being gathered and begins the next.
func (j *Journal) turnLocked() pending {
	g := pending{j.mark, j.buf, j.records}
	j.buf, j.spare = j.spare, nil
	if j.buf == nil {
		j.buf = make([]byte, groupLen)
	}
	j.records = 0
	j.mark++
	return g
}

func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Stored is the mark of the last group on stable storage, 0 for none.
func (j *Journal) Stored() uint64 { return j.stored.Load() }

// Appended is the mark of the record that was appended last; before the first it is that
// of the last group on stable storage.
func (j *Journal) Appended() uint64 { return j.appended.Load() }

// OnStored sets the function that hears of every group that was stored, on the committer's
// goroutine, which it must not block. Call it before the first Append.
func (j *Journal) OnStored(fn func(mark uint64)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onStored = fn
}

// Done returns a channel that is closed when the group that Append gave this mark for is
// stored.
func (j *Journal) Done(mark uint64) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stored.Load() >= mark {
		return nothing
	}
	i, found := slices.BinarySearchFunc(j.waiting, mark, func(w waiting, mark uint64) int { return cmp.Compare(w.mark, mark) })
	if !found {
		j.waiting = slices.Insert(j.waiting, i, waiting{mark, make(chan struct{})})
	}
	return j.waiting[i].done
}

// waiting is what those wait for who wait for a mark.
type waiting struct {
	mark uint64
	done chan struct{}
}

// nothing is what one waits for who need not wait.
var nothing = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// wakeLocked ends the waiting for marks up to stored.
func (j *Journal) wakeLocked(stored uint64) {
	n := 0
	for ; n < len(j.waiting) && j.waiting[n].mark <= stored; n++ {
		close(j.waiting[n].done)
	}
	j.waiting = slices.Delete(j.waiting, 0, n)
}

// Ended is closed when the journal stores nothing any more, after Close.
func (j *Journal) Ended() <-chan struct{} { return j.done }

// Wait returns when the group that Append gave this mark for is stored, with the context's
// error when that ends first, and with ErrClosed when it will not be stored any more.
func (j *Journal) Wait(ctx context.Context, mark uint64) error {
	if j.stored.Load() >= mark {
		return nil
	}
	select {
	case <-j.Done(mark):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-j.done:
		if j.stored.Load() >= mark {
			return nil
		}
		return ErrClosed
	}
}

// Full reports that nothing should be appended that can be refused: the disk takes
// nothing, or much less than is appended.
func (j *Journal) Full() bool {
	return j.failure.Load() != nil || j.unstored.Load() > j.opt.MaxUnstored
}

// Failing says why the disk takes nothing; nil: it does.
func (j *Journal) Failing() error {
	if f := j.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// Truncate says that groups with a lower mark are not needed any more. They are removed
// later, as far as the files allow it; until then Open may read some of them again.
func (j *Journal) Truncate(before uint64) {
	for {
		old := j.before.Load()
		if before <= old {
			return
		}
		if j.before.CompareAndSwap(old, before) {
			j.signal()
			return
		}
	}
}

// Close stores what was appended, trying once more if the disk has taken nothing of late,
// and ends the committer. Call it once.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	close(j.closing)
	<-j.done
	if n := j.unstored.Load(); n > 0 {
		return fmt.Errorf("journal: %d bytes could not be stored: %w", n, j.Failing())
	}
	return nil
}
